"""What can go wrong while an image is made."""


class BuildError(Exception):
    """The image can't be made; the message says in one line why and what to do."""
