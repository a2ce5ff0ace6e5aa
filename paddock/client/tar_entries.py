"""The headers of tar archives, as the control plane and this client write them. Pure functions."""

import os
import re
import tarfile
from typing import NamedTuple

# The kernel's limit of a path, in bytes.
_LONGEST_NAME = 4095
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,8}) ([^=\n]+)=")
_PAX_TIME = re.compile(r"(-?)([0-9]{1,12})(?:\.([0-9]{0,32}))?")
_LONG = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
# Types of headers that say more about the entry after them.
EXTENDED = (tarfile.XHDTYPE, *_LONG)
# How entries of each type are treated; the content of other types is unknown.
_KINDS = {
    **dict.fromkeys((tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.CONTTYPE), tarfile.REGTYPE),
    **{kind: kind for kind in (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE)},
    **{kind: kind for kind in (tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE)},
}


class Entry(NamedTuple):
    """An entry; `size` is that of its content, `modified` in nanoseconds since the epoch."""

    kind: bytes
    name: str
    target: str
    size: int
    mode: int
    modified: int


def written(
    name: str, kind: bytes, mode: int, modified: int, *, size: int = 0, target: str = ""
) -> bytes:
    """The blocks of a header; `modified` is in seconds."""
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.linkname = kind, mode, size, target
    info.mtime = modified
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def header(block: bytes) -> tarfile.TarInfo:
    """One block. Raises: tarfile.HeaderError."""
    info = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    # The library would take the beginning of a longer name for a directory, and strip it.
    info.type, name = block[156:157], block[:100].partition(b"\0")[0]
    if block[257:263] == b"ustar\0" and (prefix := block[345:500].partition(b"\0")[0]):
        name = prefix + b"/" + name
    info.name = os.fsdecode(name)
    return info


def records(info: tarfile.TarInfo, data: bytes) -> dict[str, str]:
    """What an extended header says. Raises: ValueError."""
    if info.type in _LONG:
        return {_LONG[info.type]: _name(data.partition(b"\0")[0])}
    found, at = {}, 0
    while at < len(data):
        record = _PAX_RECORD.match(data, at)
        end = at + int(record[1]) if record else 0
        if record is None or not record.end() < end <= len(data):
            raise ValueError("a damaged record")
        value = data[record.end() : end - 1]
        name = record[2].decode(errors="replace")
        found[name] = _name(value) if name in _LONG.values() else os.fsdecode(value)
        at = end
    return found


def _name(value: bytes) -> str:
    if len(value.removesuffix(b"/")) > _LONGEST_NAME:
        raise ValueError("a name that is too long")
    return os.fsdecode(value)


def entry(info: tarfile.TarInfo, said: dict[str, str]) -> Entry:
    """The entry: its header with what the records before it say.

    Raises: ValueError for another type, such as a sparse file.
    """
    name = said.get("path", info.name)
    size, when = said.get("size", str(info.size)), said.get("mtime", str(info.mtime))
    if info.type not in _KINDS or any(key.startswith("GNU.") for key in said):
        raise ValueError("an entry of another type")
    kind = _KINDS[info.type]
    if kind == tarfile.REGTYPE and name.endswith("/"):
        kind = tarfile.DIRTYPE  # as old programs write it
    if not re.fullmatch(r"[0-9]{1,18}", size) or not (time := _PAX_TIME.fullmatch(when)):
        raise ValueError("a malformed size or time")
    count = int(size) if kind == tarfile.REGTYPE else 0
    nanoseconds = int(time[2] + (time[3] or "").ljust(9, "0")[:9])
    modified = -nanoseconds if time[1] else nanoseconds
    return Entry(kind, name, said.get("linkpath", info.linkname), count, info.mode, modified)
