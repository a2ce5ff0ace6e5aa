"""The headers of tar archives, read and written: ustar with pax extensions. Pure functions.

The standard library's reader takes a damaged header for the end of an archive, and reads extended
headers of any size.
"""

import re
from typing import NamedTuple

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.archives.names import printable, refused

BLOCK = 512
END = bytes(BLOCK)
# Extended headers are read into memory as a whole.
LONGEST_EXTENDED = 64 * 1024
_MOST_SIZE = 2**63
_LARGEST_OCTAL = 8**11 - 1
_LONGEST_FIELD = 100
_PAX_TIME = re.compile(rb"(-?)([0-9]{1,20})(?:\.([0-9]{0,100}))?")
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
    b"D": "a list of an incremental archive",
    b"S": "a sparse file",
    b"M": "part of a file on another volume",
    b"V": "the label of a volume",
}
# Members that a record for all entries must not have, because it would apply to each of them.
_OF_ONE = (b"path", b"linkpath", b"size", b"GNU.sparse", b"GNU.volume")
_BILLION = 1_000_000_000
# In seconds: kernels and other programs can't represent times farther from the epoch.
_FARTHEST = 2**40


class Header(NamedTuple):
    """A block that describes an entry; `modified` is in nanoseconds since the epoch."""

    kind: bytes
    name: bytes
    link: bytes
    size: int
    mode: int
    modified: int = 0


def read(block: bytes) -> Header:
    """Parses a header. Its name may be the beginning of a longer one, which `whole` knows.

    Raises: AgentError if it is damaged.
    """
    name = text(block[:100])
    try:
        checksum = _number(block[148:156])
        size, mode = _number(block[124:136]), _number(block[100:108])
        modified = _signed(block[136:148])
    except ValueError:
        raise _damaged(name) from None
    plain = block[:148] + b" " * 8 + block[156:]
    # Some old programs added signed characters.
    signed = sum(plain) - 256 * sum(byte > 127 for byte in plain)
    if checksum not in (sum(plain), signed):
        raise _damaged(name)
    kind = block[156:157]
    if block[257:263] == b"ustar\0" and (prefix := text(block[345:500])):
        name = prefix + b"/" + name
    return Header(kind, name, text(block[157:257]), size, mode, _nanoseconds(modified))


def _damaged(name: bytes) -> AgentError:
    return refused(name, "has a damaged header: the archive is no tar, or cut, or compressed")


def text(field: bytes) -> bytes:
    """The content of a field before its first NUL."""
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """A number that is not negative. Raises: ValueError."""
    value = _signed(field)
    if value < 0:
        raise ValueError("negative")
    return value


def _signed(field: bytes) -> int:
    """An octal number, or a binary one, which may be negative. Raises: ValueError."""
    if field[0] == 0x80:
        value = int.from_bytes(field[1:], "big")
    elif field[0] == 0xFF:
        value = int.from_bytes(field, "big", signed=True)
    elif field[0] > 0x80:
        raise ValueError("neither octal nor binary")
    else:
        digits = field.replace(b"\0", b" ").strip()
        if digits and not re.fullmatch(rb"[0-7]+", digits):
            raise ValueError("not octal")
        value = int(digits or b"0", 8)
    if not -_MOST_SIZE <= value < _MOST_SIZE:
        raise ValueError("too large")
    return value


def whole(header: Header, records: dict[bytes, bytes]) -> Header:
    """The header of an entry, completed by the records before it. Raises: AgentError.

    A long name is in a record, and the header has only its beginning. Old programs mark a directory
    only by a `/` at the end of its name, so the type depends on the whole name.
    """
    kind, size, modified = header.kind, header.size, header.modified
    name = records.get(b"GNU.sparse.name", records.get(b"path", header.name))
    if any(key.startswith(b"GNU.sparse") for key in records):
        raise refused(name, "is a sparse file")
    if any(key.startswith(b"GNU.volume") for key in records):
        raise refused(name, "is part of a file on another volume")
    if b"size" in records:
        if not re.fullmatch(rb"[0-9]{1,19}", records[b"size"]):
            raise refused(name, "has a size that is no number")
        size = int(records[b"size"])
    if records.get(b"mtime"):
        found = _PAX_TIME.fullmatch(records[b"mtime"])
        if found is None:
            raise refused(name, "has a modification time that is no number")
        modified = _pax_time(*found.groups(b""))
    if kind in FILES and name.endswith(b"/"):
        if size:
            raise refused(name, "has the name of a directory and the content of a file")
        kind = DIRECTORY
    link = records.get(b"linkpath", header.link)
    return header._replace(kind=kind, name=name, link=link, size=size, modified=modified)


def of_all(records: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The records for all following entries that are used. Raises: AgentError.

    That is the time only. Other records are remarks, or are refused because they can't hold for
    each entry.
    """
    for key, value in records.items():
        if value and key.startswith(_OF_ONE):
            message = f"the archive has one {printable(key)} for all its entries"
            raise AgentError("validation_error", message)
    return {key: records[key] for key in (b"mtime",) if key in records}


def _pax_time(sign: bytes, seconds: bytes, fraction: bytes) -> int:
    """Nanoseconds, rounded down as the kernel rounds."""
    digits = fraction[:9].ljust(9, b"0")
    value = int(seconds) * _BILLION + int(digits)
    if not sign:
        return _bounded(value)
    return _bounded(-value - bool(fraction[9:].strip(b"0")))


def _nanoseconds(seconds: int) -> int:
    return _bounded(seconds * _BILLION)


def _bounded(nanoseconds: int) -> int:
    return min(max(nanoseconds, -_FARTHEST * _BILLION), _FARTHEST * _BILLION)


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


def write(header: Header) -> bytes:
    """The blocks of a header. The time is written in whole seconds."""
    records = {}
    if not header.name.isascii() or len(header.name) > _LONGEST_FIELD:
        records[b"path"] = header.name
    if not header.link.isascii() or len(header.link) > _LONGEST_FIELD:
        records[b"linkpath"] = header.link
    if header.size > _LARGEST_OCTAL:
        records[b"size"] = str(header.size).encode()
    if not all(map(_is_text, records.values())):
        records = {b"hdrcharset": b"BINARY", **records}
    seconds = header.modified // _BILLION
    if not 0 <= seconds <= _LARGEST_OCTAL:
        records[b"mtime"] = str(seconds).encode()
    block = _block(header)
    if not records:
        return block
    data = b"".join(_record(key, value) for key, value in records.items())
    extended = Header(PAX, b"PaxHeader", b"", len(data), 0o644)
    return _block(extended) + padded(data) + block


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def padded(data: bytes) -> bytes:
    """The data, filled up to whole blocks."""
    return data + bytes(-len(data) % BLOCK)


def _record(key: bytes, value: bytes) -> bytes:
    rest = b" " + key + b"=" + value + b"\n"
    size = len(rest)
    while len(str(size)) + len(rest) != size:
        size = len(str(size)) + len(rest)
    return str(size).encode() + rest


def _block(header: Header) -> bytes:
    size = header.size if header.size <= _LARGEST_OCTAL else 0
    when = min(max(header.modified // _BILLION, 0), _LARGEST_OCTAL)
    name = _ascii(header.name)
    if header.kind != DIRECTORY:
        # Some readers take any name that ends in `/` for a directory, even the cut beginning of a
        # longer name.
        name = name.rstrip(b"/")
    before = b"".join(
        (
            name.ljust(100, b"\0"),
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
