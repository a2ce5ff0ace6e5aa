"""The version of the server, which clients see."""

# The project's version in pyproject.toml.
VERSION = "0.1.0"
