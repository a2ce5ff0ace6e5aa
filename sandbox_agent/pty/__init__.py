"""Terminals: programs that are talked to, line by line, over a pseudo-terminal."""
