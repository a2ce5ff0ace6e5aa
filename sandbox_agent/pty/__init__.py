"""Terminals: programs that are controlled line by line over a pseudo-terminal."""
