"""Commands that a person works in: the prompt of turns, and a shell in a session."""
