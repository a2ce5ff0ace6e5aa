"""Signed messages to URLs outside: the tools that hosts register with runs."""
