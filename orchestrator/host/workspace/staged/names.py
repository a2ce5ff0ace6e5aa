"""What may be staged, by name and by facts: pure decisions."""

import stat
from collections.abc import Iterable

# Deeper trees and longer paths are refused. Projects have neither, and the limits keep the number
# of open directories small.
MOST_LEVELS = 128
MOST_PATH_BYTES = 4096
# The attributes that the kernel itself sets on staged files. The session has set all others.
_OVERLAY = frozenset(
    f"user.overlay.{name}" for name in ("origin", "impure", "nlink", "opaque", "uuid")
)
# The host's security module sets this one on every file.
_HOST = frozenset({"security.selinux"})
# Programs that propose changes write no longer hole.
_MOST_HOLE_BYTES = 64 * 1024 * 1024
_BLOCK = 512

WHITEOUT = "whiteout"
KINDS = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "symlink",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
    stat.S_IFBLK: "block device",
    stat.S_IFCHR: "character device",
}


def kind_of(mode: int, rdev: int) -> str:
    """The kind of a staged entry. The kernel marks what is deleted as a device 0:0."""
    if stat.S_ISCHR(mode) and rdev == 0:
        return WHITEOUT
    return KINDS.get(stat.S_IFMT(mode), "unknown")


def bad_name(name: bytes) -> str | None:
    """Why a name can't be proposed; None if it can."""
    try:
        text = name.decode("utf-8")
    except UnicodeDecodeError:
        return "its name is not UTF-8"
    if any(ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 for char in text):
        return "its name contains control characters"
    return None


def bad_place(ref: bytes) -> str | None:
    """Why a path, relative to the workspace, can't be proposed; None if it can."""
    if len(ref) > MOST_PATH_BYTES:
        return f"its path has more than {MOST_PATH_BYTES} bytes"
    if ref.count(b"/") >= MOST_LEVELS:
        return f"it is more than {MOST_LEVELS} levels deep"
    return None


def bad_facts(kind: str, mode: int, links: int, size: int, blocks: int) -> str | None:
    """Why an entry of that kind can't be proposed; None if it can."""
    if kind not in ("file", "directory", "symlink", WHITEOUT):
        return f"it is a {kind}"
    if kind != "symlink" and kind != WHITEOUT and mode & 0o7000:
        return "it has setuid, setgid or sticky permissions"
    if kind == "file" and links != 1:
        return "it is a hard link"
    if kind == "file" and size - blocks * _BLOCK > _MOST_HOLE_BYTES:
        return "it has a hole of more than 64 MiB"
    return None


def bad_attributes(kind: str, names: Iterable[str]) -> str | None:
    """Why an entry with these extended attributes can't be proposed; None if it can."""
    foreign = sorted(set(names) - _OVERLAY - _HOST)
    if foreign:
        return "it has extended attributes"
    if kind != "directory" and "user.overlay.opaque" in names:
        return "it has a mark that only directories have"
    return None


def bad_target(ref: str, target: bytes) -> str | None:
    """Why a symbolic link at `ref` can't be proposed; None if its text leads into the workspace.

    `..` may only come first: after another name, which may itself be a link, it could lead out.
    """
    try:
        text = target.decode("utf-8")
    except UnicodeDecodeError:
        return "it is a symbolic link whose target is not UTF-8"
    parts = text.split("/")
    ups = 0
    while ups < len(parts) and parts[ups] in ("..", ".", ""):
        ups += 1
    climbs = parts[:ups].count("..")
    leads_out = text.startswith("/") or ".." in parts[ups:] or climbs > ref.count("/")
    return "it is a symbolic link that may lead out of the workspace" if leads_out else None


def printable_name(name: bytes) -> str:
    """A name as text, with control characters and other bytes as escapes."""
    text = name.decode("utf-8", "backslashreplace")
    return "".join(
        char if ord(char) >= 0x20 and not 0x7F <= ord(char) < 0xA0 else f"\\x{ord(char):02x}"
        for char in text
    )
