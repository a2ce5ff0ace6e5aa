"""The headers of tar archives, read and written: ustar with pax extensions. Pure functions.

The standard library's reader takes a damaged header for the end of an archive, and reads extended
headers of any size.
"""

import re
from typing import NamedTuple

from sandbox_agent.archives.names import refused
from sandbox_agent.errors import AgentError

BLOCK = 512
END = bytes(BLOCK)
# Extended headers are read whole.
LONGEST_EXTENDED = 64 * 1024
_MOST_SIZE = 2**63
_LARGEST_OCTAL = 8**11 - 1
_LONGEST_FIELD = 100
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,8}) ([^=\n]+)=")

# Type flags.
FILE = b"0"
FILES = (FILE, b"\0", b"7")
HARD_LINK, SYMBOLIC_LINK, DIRECTORY = b"1", b"2", b"5"
PAX, PAX_OF_ALL, LONG_NAME, LONG_LINK = b"x", b"g", b"L", b"K"
_KINDS = {
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"S": "a sparse file",
    b"M": "part of a file on another volume",
}


class Header(NamedTuple):
    """One block of an archive that describes what follows."""

    kind: bytes
    name: bytes
    link: bytes
    size: int
    mode: int


def read(block: bytes) -> Header:
    """Parses a header. Raises: AgentError if it is damaged."""
    name = _text(block[:100])
    try:
        checksum = _number(block[148:156])
        size, mode = _number(block[124:136]), _number(block[100:108])
    except ValueError:
        raise _damaged(name) from None
    plain = block[:148] + b" " * 8 + block[156:]
    # Some old programs added signed characters.
    signed = sum(plain) - 256 * sum(byte > 127 for byte in plain)
    if checksum not in (sum(plain), signed):
        raise _damaged(name)
    kind = block[156:157]
    if block[257:263] == b"ustar\0" and (prefix := _text(block[345:500])):
        name = prefix + b"/" + name
    if kind in FILES and name.endswith(b"/"):
        kind = DIRECTORY  # in the oldest form
    return Header(kind, name, _text(block[157:257]), size, mode)


def _damaged(name: bytes) -> AgentError:
    return refused(name, "has a damaged header: the archive is no tar, or cut, or compressed")


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """An octal number, or a binary one. Raises: ValueError."""
    if field[0] == 0x80:
        value = int.from_bytes(field[1:], "big")
    elif field[0] > 0x80:
        raise ValueError("negative")
    else:
        digits = field.replace(b"\0", b" ").strip()
        if digits and not re.fullmatch(rb"[0-7]+", digits):
            raise ValueError("not octal")
        value = int(digits or b"0", 8)
    if value >= _MOST_SIZE:
        raise ValueError("too large")
    return value


def with_pax(header: Header, records: dict[bytes, bytes]) -> Header:
    """The header with what pax records say of it. Raises: AgentError."""
    name = records.get(b"path", header.name)
    if any(key.startswith(b"GNU.sparse") for key in records):
        raise refused(name, "is a sparse file")
    size = header.size
    if b"size" in records:
        if not re.fullmatch(rb"[0-9]{1,19}", records[b"size"]):
            raise refused(name, "has a size that is no number")
        size = int(records[b"size"])
    return header._replace(name=name, link=records.get(b"linkpath", header.link), size=size)


def pax_records(data: bytes) -> dict[bytes, bytes]:
    """The records of an extended header. Raises: AgentError."""
    records: dict[bytes, bytes] = {}
    at = 0
    while at < len(data):
        found = _PAX_RECORD.match(data, at)
        end = at + int(found[1]) if found else 0
        if found is None or end > len(data) or end <= found.end() or data[end - 1] != 0x0A:
            raise AgentError("validation_error", "the archive has a damaged extended header")
        records[found[2]] = data[found.end() : end - 1]
        at = end
    return records


def unsupported(header: Header) -> AgentError:
    """The refusal of an entry of another type."""
    what = _KINDS.get(header.kind, f"of the unknown type {header.kind!r}")
    return refused(header.name, f"is {what}")


def write(header: Header, modified: int) -> bytes:
    """The blocks of a header; `modified` is in seconds since the epoch."""
    records = {}
    if not header.name.isascii() or len(header.name) > _LONGEST_FIELD:
        records[b"path"] = header.name
    if not header.link.isascii() or len(header.link) > _LONGEST_FIELD:
        records[b"linkpath"] = header.link
    if header.size > _LARGEST_OCTAL:
        records[b"size"] = str(header.size).encode()
    block = _block(header, modified)
    if not records:
        return block
    data = b"".join(_record(key, value) for key, value in records.items())
    extended = Header(PAX, b"PaxHeader", b"", len(data), 0o644)
    return _block(extended, 0) + padded(data) + block


def padded(data: bytes) -> bytes:
    """The data, filled up to whole blocks."""
    return data + bytes(-len(data) % BLOCK)


def _record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    size = len(rest)
    while len(str(size)) + len(rest) != size:
        size = len(str(size)) + len(rest)
    return str(size).encode() + rest


def _block(header: Header, modified: int) -> bytes:
    size = header.size if header.size <= _LARGEST_OCTAL else 0
    when = min(max(modified, 0), _LARGEST_OCTAL)
    before = b"".join(
        (
            _ascii(header.name).ljust(100, b"\0"),
            b"%07o\0" % header.mode,
            b"%07o\0" % 0,
            b"%07o\0" % 0,
            b"%011o\0" % size,
            b"%011o\0" % when,
        )
    )
    after = header.kind + _ascii(header.link).ljust(100, b"\0") + b"ustar\00000"
    after = after.ljust(BLOCK - len(before) - 8, b"\0")
    checksum = sum(before) + sum(after) + 8 * ord(" ")
    return before + b"%06o\0 " % checksum + after


def _ascii(name: bytes) -> bytes:
    return name.decode("ascii", "replace").encode("ascii", "replace")[:_LONGEST_FIELD]
