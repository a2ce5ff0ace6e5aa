"""Decides by a pack what its session may do; what it does not list is denied. No I/O."""

import hmac
import shlex
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.state.pack import Pack, PackFile
from paddock.contract.pack_form import WORKSPACE, ToolClass
from sandbox_agent.decide.command_words import DeniedError

ALLOWLIST = "CTX-ALLOWLIST-001"
HASH_MISMATCH = "CTX-HASH-MISMATCH-001"
TOCTOU = "CTX-TOCTOU-001"
HASH_REQUIRED = "CTX-HASH-REQUIRED-001"
MALFORMED = "CTX-PATH-001"
TOOL = "CTX-TOOL-001"
WRITE = "CTX-WRITE-001"
SHELL = "CTX-SHELL-001"

_MAX_PATH_BYTES = 4_096
_CUT = "...[TRUNCATED]"
_MAX_SHOWN_COMMAND = 256
_OPERATORS = frozenset(";&|><`$()\0\n\r")


class Denial(NamedTuple):
    """A refusal; `misses`: what was wanted is missing in the pack, so it has to be refined."""

    rule: str
    path: str
    reason: str
    misses: bool = False


def reading(pack: Pack, path: str, stated: str | None = None) -> PackFile | Denial:
    """The file at that absolute, normalised path, if a reader that states that hash may read it."""
    if (denial := _class(pack, ToolClass.READ, path)) is not None:
        return denial
    file = pack.files.get(path)
    if file is None:
        return Denial(ALLOWLIST, path, "Not in allowlist", misses=True)
    if file.zoom and stated is None:
        return Denial(HASH_REQUIRED, path, "ContentHashRequired: state the file's content hash")
    if stated is not None and file.content_hash is not None and not _same(stated, file):
        return Denial(HASH_MISMATCH, path, "Content hash mismatch", misses=True)
    return file


def content(file: PackFile, found: str) -> Denial | None:
    """Whether bytes with that hash may be returned for the file."""
    if file.content_hash is None or _same(found, file):
        return None
    return Denial(TOCTOU, file.path, "Content hash mismatch", misses=True)


def listing(pack: Pack, path: str) -> Denial | None:
    """Whether the directory may be listed; `visible` says what it shows."""
    if (denial := _class(pack, ToolClass.LIST_FILES, path)) is not None:
        return denial
    if path in pack.directories or path in pack.files or pack.writable(path):
        return None
    return Denial(ALLOWLIST, path, "Not in allowlist", misses=True)


def visible(pack: Pack, path: str) -> bool:
    """Whether a listing shows the path: a file of the pack, a directory above, what is written."""
    return path in pack.files or path in pack.directories or pack.writable(path)


def writing(pack: Pack, path: str) -> Denial | None:
    """Whether the path may be written, created, moved or removed."""
    if (denial := _class(pack, ToolClass.WRITE, path)) is not None:
        return denial
    if pack.writable(path):
        return None
    return Denial(WRITE, path, "WritePathNotAllowed: not in the write allowlist")


def check_command(pack: Pack, argv: Sequence[str]) -> None:
    """Raises: DeniedError if the words are not a command of the shell allowlist."""
    check_class(pack, ToolClass.EXECUTE)
    text = shlex.join(argv)
    if not any(_matches(pattern, text, argv) for pattern in pack.commands):
        raise DeniedError(
            SHELL,
            "ShellCommandNotAllowed: the context pack's shell allowlist does not have "
            f"{text[:_MAX_SHOWN_COMMAND]}",
        )


def outside_pack(pack: Pack | None, tool: str) -> tuple[str, str] | None:
    """The rule and the reason if the session may not open that tool: its name is the command."""
    if pack is None:
        return None
    try:
        check_command(pack, [tool])
    except DeniedError as denied:
        return denied.rule, denied.message
    return None


def check_class(pack: Pack, wanted: ToolClass) -> None:
    """Raises: DeniedError if the session may do nothing of that class."""
    if (denial := _class(pack, wanted, WORKSPACE)) is not None:
        raise DeniedError(denial.rule, denial.reason)


def truncated(path: str) -> str:
    """The path as events have it: valid UTF-8 of at most 4,096 bytes."""
    data = path.encode("utf-8", "backslashreplace")
    if len(data) <= _MAX_PATH_BYTES:
        return data.decode()
    return data[: _MAX_PATH_BYTES - len(_CUT)].decode("utf-8", "ignore") + _CUT


def _class(pack: Pack, wanted: ToolClass, path: str) -> Denial | None:
    if wanted in pack.tools:
        return None
    reason = f"ToolNotAllowed: {wanted} is not in the tool allowlist of {pack.manifest_id:.64}"
    return Denial(TOOL, path, reason)


def _same(text: str, file: PackFile) -> bool:
    """Compares in a time that does not depend on the content."""
    return hmac.compare_digest(text.encode(), (file.content_hash or "").encode())


def _matches(pattern: str, text: str, argv: Sequence[str]) -> bool:
    """Whether a pattern permits the command; only an exact one permits shell operators."""
    if "*" not in pattern:
        return pattern == text
    if any(_OPERATORS.intersection(word) for word in argv):
        return False
    first, *middle, last = pattern.split("*")
    if not text.startswith(first) or len(text) < len(first) + len(last):
        return False
    at = len(first)
    for part in middle:
        found = text.find(part, at, len(text) - len(last))
        if found < 0:
            return False
        at = found + len(part)
    return at <= len(text) - len(last) and text.endswith(last)
