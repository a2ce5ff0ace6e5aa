"""Configuration: settings, and the files of the operator."""
