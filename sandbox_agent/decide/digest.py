"""Digests. Their library takes 6 ms to load, so a sandbox's start does not wait for it."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import _Hash


def sha256(data: bytes = b"") -> "_Hash":
    """A digest that begins with that data."""
    import hashlib

    return hashlib.sha256(data)


def load() -> None:
    """Loads their library; processes that are forked afterwards have it."""
    sha256()
