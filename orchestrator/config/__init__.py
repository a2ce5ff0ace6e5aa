"""Configuration: the settings and the operator's files."""
