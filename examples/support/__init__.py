"""Shared code of the examples: an API client, the package they work on, terminal output."""
