"""Packs a directory into a tar or zip archive, piece by piece as the caller pulls them."""

import os
from collections.abc import Iterator

from sandbox_agent.files.archives import tar_headers as tar
from sandbox_agent.files.archives.scan import Scan, content
from sandbox_agent.files.archives.tar_headers import Header


class Packing:
    """The bytes of an archive."""

    def __init__(self, scan: Scan, kind: str) -> None:
        """`kind` is tar or zip."""
        self._pieces = _tar(scan) if kind == "tar" else _zip(scan)
        self._ready = bytearray()

    def pull(self, limit: int) -> bytes:
        """The next bytes; empty at the end.

        Raises: AgentError if a file has become shorter meanwhile; OSError.
        """
        while len(self._ready) < limit:
            piece = next(self._pieces, None)
            if piece is None:
                break
            self._ready += piece
        taken = bytes(self._ready[:limit])
        del self._ready[:limit]
        return taken


def _tar(scan: Scan) -> Iterator[bytes]:
    for found in scan.entries:
        name = os.fsencode(found.path)
        if found.kind == "symlink":
            target = os.fsencode(found.target)
            yield tar.write(Header(tar.SYMBOLIC_LINK, name, target, 0, 0o777, found.modified))
            continue
        with scan.reopened(found) as reopened:
            if reopened is None:
                continue
            opened, status = reopened
            mode, modified = status.st_mode & 0o777, status.st_mtime_ns
            if found.kind == "directory":
                yield tar.write(Header(tar.DIRECTORY, name + b"/", b"", 0, mode, modified))
                continue
            size = status.st_size
            yield tar.write(Header(tar.FILE, name, b"", size, mode, modified))
            yield from content(opened, found, size)
            yield bytes(-size % tar.BLOCK)
    yield tar.END * 2


def _zip(scan: Scan) -> Iterator[bytes]:
    from sandbox_agent.files.archives import zip_writer

    return zip_writer.pieces(scan)
