"""The server's own commands."""
