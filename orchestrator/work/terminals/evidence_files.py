"""The files of a terminal's evidence: created, appended to, synced and hashed. All calls block."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.store import directories

RAW_NAME = "raw"
TRANSCRIPT_NAME = "transcript.log"
RECORDING_NAME = "recording.cast"


class Digests(NamedTuple):
    """The finished files: their sizes in bytes, and `sha256:…` of their contents.

    Without a recording, it has no bytes and no hash.
    """

    raw_bytes: int
    raw_hash: str
    raw_truncated: bool
    transcript_bytes: int
    transcript_hash: str
    recording_bytes: int = 0
    recording_hash: str | None = None
    recording_truncated: bool = False

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return self.raw_bytes + self.transcript_bytes + self.recording_bytes


class KeptFile:
    """One open file, and the size and hash of what is appended to it. Raises: OSError."""

    def __init__(self, path: Path) -> None:
        """Creates the file, which must not exist."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self.path = path
        self.descriptor = os.open(path, flags, 0o600)
        self.bytes = 0
        self._hash = hashlib.sha256()

    @property
    def digest(self) -> str:
        """`sha256:…` of what was added."""
        return f"sha256:{self._hash.hexdigest()}"

    def added(self, data: bytes) -> tuple[int, bytes]:
        """Counts data that `write` will append."""
        self.bytes += len(data)
        self._hash.update(data)
        return self.descriptor, data


def write(pieces: Sequence[tuple[int, bytes]]) -> None:
    """Appends each piece to the file of its descriptor. Raises: OSError."""
    for descriptor, piece in pieces:
        rest = piece
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def sync(directory: Path, descriptors: Sequence[int]) -> None:
    """Makes the files durable. Raises: OSError."""
    for descriptor in descriptors:
        os.fsync(descriptor)
    directories.sync(directory)


def close(descriptors: Sequence[int]) -> None:
    """Closes the files."""
    for descriptor in descriptors:
        os.close(descriptor)


def hashed(path: Path) -> tuple[int, str]:
    """The size and the `sha256:…` of a file. Raises: OSError."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), f"sha256:{digest}"
