"""What works in a session by itself: turns, runs, children, and questions of commands."""
