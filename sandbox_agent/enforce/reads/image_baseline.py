"""Reads what programs of images look for besides a session's manifest: `baseline.toml`."""

import os
from typing import NamedTuple

PACKAGED = os.path.join(os.path.dirname(__file__), "baseline.toml")
# Of the image; only its maker has it there.
ADDED = "/etc/paddock/baseline.toml"


class ImageBaseline(NamedTuple):
    """Absolute paths; the files explain their members."""

    read: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


class BaselineError(ValueError):
    """A baseline can't be used; the message names its file and the member."""


def load(packaged: str = PACKAGED, added: str = ADDED) -> ImageBaseline:
    """The baseline of every image, with what this one adds. Raises: BaselineError."""
    own = _file(packaged)
    more = _file(added) if os.path.lexists(added) else ImageBaseline()
    return ImageBaseline(*(one + other for one, other in zip(own, more, strict=True)))


def _file(path: str) -> ImageBaseline:
    import tomllib  # imported late: it takes memory, and few sessions need it

    try:
        with open(path, "rb") as file:
            found = tomllib.load(file)
    except (OSError, ValueError) as error:
        raise BaselineError(f"{path}: {error}") from None
    for name, items in found.items():
        if name not in ImageBaseline._fields:
            raise BaselineError(f"{path}: {name:.64} is not a member of a baseline")
        if not isinstance(items, list) or not all(map(_is_path, items)):
            raise BaselineError(f"{path}: {name} must be a list of absolute paths without links")
    return ImageBaseline(**{name: tuple(items) for name, items in found.items()})


def _is_path(item: object) -> bool:
    """Whether it is a normalised absolute path below the root."""
    if not isinstance(item, str) or "\0" in item or not item.startswith("/"):
        return False
    return os.path.normpath(item) == item and item.strip("/") != ""
