"""Validates an agent's answers about files."""

import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from orchestrator.host.link.messages import malformed
from sandbox_agent.decide.protocol import Message

# Numbers of an agent must fit JSON numbers of every reader.
_NUMBERS = 2**53
_MOST_MODE = 0o7777
_MOST_ATTRIBUTES = 64
NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})
_VERSION = re.compile(r"[0-9a-f]{32}")


class FileEntry(NamedTuple):
    """A file, directory, link or other entry, as reported by the agent.

    `mode` has octal digits, `modified` is in seconds since the epoch, `target` is a link's.
    """

    path: str
    type: str
    size: int
    mode: str
    modified: float
    target: str | None
    # The entity tag, of one entry that was asked for.
    version: str | None = None
    # The extended attributes that were asked for, by names without their prefix.
    attributes: Mapping[str, str] = NO_ATTRIBUTES


class Listing(NamedTuple):
    """The contents of a directory; `truncated` if they did not fit a reply."""

    entries: tuple[FileEntry, ...]
    truncated: bool


def parse_entry(entry: Any) -> FileEntry:
    """An entry of a listing, rebuilt from the agent's answer."""
    try:
        target, modified = entry.get("target"), float(entry["modified"])
        size, mode = whole_number(entry, "size"), whole_number(entry, "mode")
        if mode > _MOST_MODE or not math.isfinite(modified):
            raise ValueError
        return FileEntry(
            path=str(entry["path"]),
            type=str(entry["type"]),
            size=size,
            mode=f"{mode:04o}",
            modified=modified,
            target=None if target is None else str(target),
            version=parse_version(entry.get("version")),
            attributes={str(name): str(value) for name, value in _attributes(entry).items()},
        )
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise malformed() from None


def _attributes(entry: Any) -> dict[Any, Any]:
    given = entry.get("attributes") or {}
    if not isinstance(given, dict) or len(given) > _MOST_ATTRIBUTES:
        raise ValueError
    return given


def parse_version(value: Any) -> str | None:
    """A file's entity tag. Raises: SandboxUnavailableError if it is none."""
    if value is None:
        return None
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise malformed()
    return value


def whole_number(answer: Message, name: str) -> int:
    """That member of an answer. Raises: SandboxUnavailableError if it is not such a number."""
    value = answer.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _NUMBERS:
        raise malformed()
    return value
