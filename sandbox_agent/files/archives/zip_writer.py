"""Writes a directory as a zip archive. An entry of a symbolic link contains the link's target."""

import os
import stat
import time
import zipfile
from collections.abc import Iterator

from sandbox_agent.files.archives import zip_entries
from sandbox_agent.files.archives.scan import Found, Scan, content

# The format's times begin in 1980.
_FIRST_TIME = (1980, 1, 1, 0, 0, 0)
_LAST_TIME = (2107, 12, 31, 23, 59, 58)
_LAST_SECOND = 4_354_819_198
_ZIP64_BYTES = 2**31
_UNIX = 3
_DOS_DIRECTORY = 0x10


class _Outlet:
    """The file that zipfile writes to; it can't seek."""

    def __init__(self) -> None:
        self._written = bytearray()

    def write(self, data: bytes) -> int:
        """Keeps bytes for `take`."""
        self._written += data
        return len(data)

    def flush(self) -> None:
        """Does nothing: nothing is buffered here."""

    def take(self) -> bytes:
        """The bytes that were written since the last call."""
        taken, self._written = bytes(self._written), bytearray()
        return taken


def pieces(scan: Scan) -> Iterator[bytes]:
    """The archive's bytes. Raises: AgentError, OSError."""
    outlet = _Outlet()
    with zipfile.ZipFile(outlet, "w") as archive:  # type: ignore[call-overload]
        for found in scan.entries:
            if found.kind == "symlink":
                info = _info(found.path, stat.S_IFLNK | 0o777, found.modified)
                archive.writestr(info, found.target.encode())
                continue
            with scan.reopened(found) as opened:
                if opened is not None:
                    yield from _opened(archive, outlet, found, *opened)
    yield outlet.take()


def _opened(
    archive: zipfile.ZipFile, outlet: _Outlet, found: Found, opened: int, status: os.stat_result
) -> Iterator[bytes]:
    directory = found.kind == "directory"
    info = _info(found.path + "/" * directory, status.st_mode & ~0o7000, status.st_mtime_ns)
    if directory:
        info.external_attr |= _DOS_DIRECTORY
        archive.writestr(info, b"")
        return
    info.compress_type = zipfile.ZIP_DEFLATED
    size = status.st_size
    with archive.open(info, "w", force_zip64=size >= _ZIP64_BYTES) as entry:
        for data in content(opened, found, size):
            entry.write(data)
            yield outlet.take()


def _info(name: str, mode: int, modified: int) -> zipfile.ZipInfo:
    """`modified` is in nanoseconds since the epoch."""
    seconds = modified // 1_000_000_000
    when = time.gmtime(min(max(seconds, 0), _LAST_SECOND))[:6]
    info = zipfile.ZipInfo(name, min(max(when, _FIRST_TIME), _LAST_TIME))
    info.create_system = _UNIX
    info.external_attr = mode << 16
    info.extra = zip_entries.extra_fields(name, seconds)
    return info
