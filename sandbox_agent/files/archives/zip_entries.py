"""The name and the modification time of an entry in a zip archive. Pure functions.

The format once had no character set for names, no time zone and no fixed separator. Programs put
these facts into extra fields.
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
# The seconds between 1601, where NTFS times begin, and 1970.
_NTFS_EPOCH = 11_644_473_600
_LATEST_TIMESTAMP = 2**31 - 1


def name(info: zipfile.ZipInfo) -> bytes:
    r"""The name, in UTF-8, with `/` between its parts. Raises: AgentError.

    A name without the flag may still be UTF-8, as macOS writes it, or be in code page 437. Some
    Windows programs separate parts by `\`; in a name that also has `/`, it is a character.
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
    # A month or a day that does not exist is replaced by one that does.
    year, month, day, *time = info.date_time
    fixed = (year, min(max(month, 1), 12), max(day, 1), *time)
    return int(calendar.timegm((*fixed, 0, 0, 0))) * _BILLION


def extra_fields(path: str, seconds: int) -> bytes:
    r"""Extra fields for the time in UTC and, if the name has a `\`, for the exact name."""
    fields = b""
    if 0 <= seconds <= _LATEST_TIMESTAMP:
        fields += struct.pack("<HHBi", _TIMESTAMP, 5, _HAS_MODIFIED, seconds)
    if "\\" in path:
        raw = path.encode()
        # A name in ASCII has no flag, and the same bytes in all encodings.
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
