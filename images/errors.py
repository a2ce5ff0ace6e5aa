"""Errors of building an image."""


class BuildError(Exception):
    """The image can't be made; the message gives the reason and the remedy in one line."""
