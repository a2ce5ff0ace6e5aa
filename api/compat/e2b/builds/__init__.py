"""Templates that E2B's clients build: a session carries out the steps, and a snapshot keeps it."""
