"""Which names and links an archive may have: pure functions.

A name is relative and has no `..`; its bytes need not be UTF-8. Everything is checked before
anything is created.
"""

import os

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.places import RULE

# The kernel's own limits, in bytes.
_LONGEST_PATH = 4095
_LONGEST_NAME = 255
# Every directory is opened separately, so depth costs time.
_DEEPEST = 256
_MOST_SHOWN = 200


def entry_path(name: bytes) -> str:
    """The path of an entry relative to the directory, `.` for the directory itself.

    Raises: AgentError.
    """
    text = os.fsdecode(name)
    if "\0" in text:
        raise refused(name, "has a NUL character")
    if text.startswith("/"):
        raise leads_out(name, "is an absolute path")
    parts = [part for part in text.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise leads_out(name, "has `..` in its path")
    path = "/".join(parts)
    too_long = any(len(os.fsencode(part)) > _LONGEST_NAME for part in parts)
    if too_long or len(os.fsencode(path)) > _LONGEST_PATH:
        raise refused(name, "is too long")
    if len(parts) > _DEEPEST:
        raise refused(name, f"is more than {_DEEPEST} directories deep")
    if not parts and not text:
        raise refused(name, "is empty")
    return path or "."


def link_target(path: str, target: bytes) -> str:
    """The target of a symbolic link at `path`. Raises: AgentError if it leads out."""
    text = os.fsdecode(target)
    if not leads_inside(path, text):
        raise leads_out(path, "is a symbolic link that leads out of the directory")
    return text


def leads_inside(path: str, target: str) -> bool:
    """Whether a link at `path` leads to something in the directory, whatever other links exist.

    `..` is accepted only at the beginning, because after another link it would not lead where it
    seems to.
    """
    steps = [step for step in target.split("/") if step not in ("", ".")]
    up = 0
    while up < len(steps) and steps[up] == "..":
        up += 1
    fits = 0 < len(os.fsencode(target)) <= _LONGEST_PATH
    return (
        fits
        and "\0" not in target
        and not target.startswith("/")
        and ".." not in steps[up:]
        and up <= path.count("/")
    )


def is_text(name: str) -> bool:
    """Whether a name from the disk is UTF-8; Python represents other bytes as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def printable(name: bytes | str) -> str:
    """A name for a message, escaped where it is not printable, and not too long."""
    raw = name if isinstance(name, bytes) else name.encode("utf-8", "surrogateescape")
    text = raw.decode(errors="backslashreplace")
    text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"


def entry(name: bytes | str) -> str:
    """How a message names an entry. Names are escaped only once, so that secrets are found."""
    return f"entry '{printable(name)}'"


def refused(name: bytes | str, why: str) -> AgentError:
    """The refusal of an entry that can't be written."""
    return AgentError("validation_error", f"{entry(name)} {why}")


def leads_out(name: bytes | str, why: str) -> AgentError:
    """The refusal of an entry that would leave the directory."""
    return AgentError("permission_denied", f"{entry(name)} {why}", RULE)
