"""Moves of sessions between nodes: their rows, and what a session goes on with."""
