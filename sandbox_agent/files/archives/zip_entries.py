"""What a zip archive says of an entry: its name and its modification time. Pure functions.

The format has had no character set for names, no time zone and no one separator; programs put the
missing facts into extra fields.
"""

import calendar
import struct
import zipfile
import zlib
from collections.abc import Iterator

from sandbox_agent.files.archives.names import leads_out

_UTF8 = 0x800
# Identifiers of extra fields.
_TIMESTAMP, _NTFS, _UNICODE_PATH = 0x5455, 0x000A, 0x7075
_HAS_MODIFIED = 0x1
_BILLION = 1_000_000_000
# Between 1601, where NTFS begins, and 1970; in seconds.
_NTFS_EPOCH = 11_644_473_600
_LATEST_TIMESTAMP = 2**31 - 1


def name(info: zipfile.ZipInfo) -> bytes:
    r"""The name, in UTF-8, with `/` between its parts. Raises: AgentError.

    Without a flag it may be UTF-8 all the same, as macOS writes it, or in the code page 437. Some
    Windows programs separate by `\`; a name that has both keeps it as a character.
    """
    if info.flag_bits & _UTF8:
        raw = info.orig_filename.encode("utf-8", "surrogateescape")
    else:
        raw = info.orig_filename.encode("cp437")
    exact = _unicode_path(info.extra, raw)
    if exact is not None:
        return exact
    if b"\\" in raw:
        if b".." in raw.split(b"\\"):
            raise leads_out(raw, "has `..` in its path")
        if b"/" not in raw:
            raw = raw.replace(b"\\", b"/")
    try:
        raw.decode()
    except UnicodeDecodeError:
        if not info.flag_bits & _UTF8:
            return raw.decode("cp437").encode()
    return raw


def modified(info: zipfile.ZipInfo) -> int:
    """Nanoseconds since the epoch: from an extra field, or from the entry's own time as UTC."""
    for kind, data in _fields(info.extra):
        if kind == _TIMESTAMP and len(data) >= 5 and data[0] & _HAS_MODIFIED:
            (seconds,) = struct.unpack_from("<i", data, 1)
            return int(seconds) * _BILLION
        # A reserved number, then the tag and the size of three times.
        if kind == _NTFS and data[4:8] == b"\x01\0\x18\0" and len(data) >= 16:
            (ticks,) = struct.unpack_from("<Q", data, 8)
            if not ticks:
                continue  # not set
            return min(int(ticks) * 100 - _NTFS_EPOCH * _BILLION, 2**62)
    # Damaged ones count on: a month or a day that does not exist.
    year, month, day, *time = info.date_time
    fixed = (year, min(max(month, 1), 12), max(day, 1), *time)
    return int(calendar.timegm((*fixed, 0, 0, 0))) * _BILLION


def extra_fields(path: str, seconds: int) -> bytes:
    r"""The fields that say the time in UTC, and a name with `\` as it is."""
    fields = b""
    if 0 <= seconds <= _LATEST_TIMESTAMP:
        fields += struct.pack("<HHBi", _TIMESTAMP, 5, _HAS_MODIFIED, seconds)
    if "\\" in path:
        raw = path.encode()
        # A name in ASCII has no flag, and the same bytes.
        fields += struct.pack("<HHBI", _UNICODE_PATH, 5 + len(raw), 1, zlib.crc32(raw)) + raw
    return fields


def _unicode_path(fields: bytes, raw: bytes) -> bytes | None:
    """The name in an extra field, unless a program has renamed the entry since."""
    for kind, data in _fields(fields):
        if kind == _UNICODE_PATH and len(data) > 5 and data[0] == 1:
            (checksum,) = struct.unpack_from("<I", data, 1)
            return data[5:] if checksum == zlib.crc32(raw) else None
    return None


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        kind, size = struct.unpack_from("<HH", data, at)
        yield kind, data[at + 4 : at + 4 + size]
        at += 4 + size
