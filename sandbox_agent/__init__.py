"""The sandbox agent: PID 1 of every sandbox. Standard library only."""
