"""The version that the server tells its clients."""

# The project's version in pyproject.toml.
VERSION = "0.1.0"
