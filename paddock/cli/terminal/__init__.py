"""This program's terminal and standard streams, tied to commands and shells of sessions."""
