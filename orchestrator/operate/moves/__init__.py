"""Moves of sessions: packed and sent by one node, received and offered by another."""
