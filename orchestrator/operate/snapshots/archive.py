"""The form of a snapshot's archive: a tar of parts in one order, each with its digest. Pure.

`snapshot.json` comes first and lists the parts with sizes and digests; `snapshot.sha256` has the
digest of `snapshot.json`. Only headers as `header` writes them are read, so none can hide anything.
"""

import hashlib
import tarfile
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

from orchestrator.ground.errors import TooLargeError, ValidationError

MANIFEST = "snapshot.json"
DIGEST = "snapshot.sha256"
WORKSPACE = "workspace.tar"
MARKS = "staged.json"
STAGED = "staged.tar"
# The parts that follow the manifest, without or with staged work.
FORMS = ((WORKSPACE,), (WORKSPACE, MARKS, STAGED))
MOST_MANIFEST_BYTES = 16 * 1024 * 1024
MOST_MARK_BYTES = 32 * 1024 * 1024
MOST_BYTES = 16 * 1024 * 1024 * 1024
_MOST_OF_PART = {MARKS: MOST_MARK_BYTES}
_BLOCK = 512
END = bytes(2 * _BLOCK)

_Waiting = Generator[None, bytes, None]
_WaitingForBytes = Generator[None, bytes, bytes]


class PartFacts(NamedTuple):
    """What the manifest says of a part."""

    name: str
    size: int
    sha256: str


class SnapshotError(ValidationError):
    """The archive is no complete, unaltered snapshot; `field` names the part."""


def header(name: str, size: int) -> bytes:
    """The header of a part."""
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = size, 0o600
    return entry.tobuf(tarfile.GNU_FORMAT)


def padding(size: int) -> bytes:
    """The bytes that follow a part of that size."""
    return bytes(-size % _BLOCK)


def digest_line(manifest: bytes) -> bytes:
    """The content of `snapshot.sha256`, as `sha256sum` writes it."""
    return f"{hashlib.sha256(manifest).hexdigest()}  {MANIFEST}\n".encode()


def head(manifest: bytes) -> bytes:
    """The archive's beginning, up to its first part."""
    line = digest_line(manifest)
    members = ((MANIFEST, manifest), (DIGEST, line))
    return b"".join(header(name, len(data)) + data + padding(len(data)) for name, data in members)


class ArchiveReader:
    """Takes an archive's bytes in any pieces. Raises: SnapshotError if it was altered.

    `listed` reads the manifest and returns its parts; `sink` returns what takes a part's bytes.
    """

    def __init__(
        self,
        listed: Callable[[bytes], Sequence[PartFacts]],
        sink: Callable[[str], Callable[[bytes], object]],
    ) -> None:
        self._listed, self._sink = listed, sink
        self._unread = bytearray()
        self._ended = False
        self._taken = 0
        self._parser = self._parse()
        next(self._parser)

    def feed(self, data: bytes) -> None:
        """Takes the next bytes. Raises: TooLargeError, too."""
        self._taken += len(data)
        if self._taken > MOST_BYTES:
            raise TooLargeError(f"a snapshot has at most {MOST_BYTES} bytes")
        self._parser.send(data)

    def finish(self) -> None:
        """Checks that the archive is complete."""
        if not self._ended:
            raise SnapshotError("the snapshot is cut: it has no end", field="archive")

    def _take(self, count: int) -> _WaitingForBytes:
        while len(self._unread) < count:
            self._unread += yield
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _parse(self) -> _Waiting:
        manifest = yield from self._small(MANIFEST, MOST_MANIFEST_BYTES)
        line = yield from self._small(DIGEST, _BLOCK)
        if line != digest_line(manifest):
            raise SnapshotError(f"{MANIFEST} is not what {DIGEST} says", field=MANIFEST)
        parts = self._listed(manifest)
        check_form(parts)
        for part in parts:
            block = yield from self._take(_BLOCK)
            if block != header(part.name, part.size):
                raise SnapshotError(
                    f"{part.name} is not the next part, or not of its size", field=part.name
                )
            yield from self._part(part)
        if (yield from self._take(len(END))) != END:
            raise SnapshotError("the snapshot has more than its parts", field="archive")
        self._ended = True
        while not self._unread:
            self._unread += yield
        raise SnapshotError("the snapshot goes on after its end", field="archive")

    def _small(self, name: str, most: int) -> _WaitingForBytes:
        """A part that is kept in memory; its header says how long it is."""
        block = yield from self._take(_BLOCK)
        try:
            size = tarfile.TarInfo.frombuf(block, "ascii", "strict").size
        except (tarfile.HeaderError, ValueError):
            size = -1
        if not 0 <= size <= most or block != header(name, size):
            raise SnapshotError(
                f"this is no snapshot: {name}, of at most {most} bytes, is not its next part",
                field=name,
            )
        data = yield from self._take(size)
        yield from self._padding(name, size)
        return data

    def _part(self, part: PartFacts) -> _Waiting:
        write, digest, left = self._sink(part.name), hashlib.sha256(), part.size
        while left:
            if not self._unread:
                self._unread += yield
            piece = bytes(self._unread[:left])
            del self._unread[: len(piece)]
            left -= len(piece)
            digest.update(piece)
            write(piece)
        yield from self._padding(part.name, part.size)
        if digest.hexdigest() != part.sha256:
            raise SnapshotError(f"{part.name} was altered: its digest differs", field=part.name)

    def _padding(self, name: str, size: int) -> _Waiting:
        if any((yield from self._take(-size % _BLOCK))):
            raise SnapshotError(f"{name} is followed by something else", field=name)


def check_form(parts: Sequence[PartFacts]) -> None:
    """Raises: SnapshotError, TooLargeError if a snapshot can't have these parts."""
    if tuple(part.name for part in parts) not in FORMS:
        raise SnapshotError(f"parts must be {' or '.join(map(', '.join, FORMS))}", field="parts")
    for part in parts:
        if not 0 <= part.size <= _MOST_OF_PART.get(part.name, MOST_BYTES):
            raise TooLargeError(f"{part.name} is too large for a snapshot", field=part.name)
