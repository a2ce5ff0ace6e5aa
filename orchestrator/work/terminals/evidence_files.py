"""The files of a terminal's evidence: written, synced, hashed, and finished after a kill.

All calls block.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.ground.store import directories
from orchestrator.work.terminals import transcript

RAW_NAME = "raw"
TRANSCRIPT_NAME = "transcript.log"
RECORDING_NAME = "recording.cast"
# The first raw bytes are kept; all are counted. The same holds for the output in a recording.
MOST_RAW_BYTES = 64 * 1024 * 1024
# What is read at a time, backwards, to find the last whole line.
_STEP_BYTES = 64 * 1024


class EvidenceError(AuditUnavailableError):
    """The events of a terminal can't be recorded, so nothing may happen in it."""


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


def finish_abandoned(directory: Path, reason: str, interactions: int) -> Digests | None:
    """Finishes files that a killed control plane left; None if there are none.

    Call it in a thread. Raises: EvidenceError.
    """
    raw_path, path = directory / RAW_NAME, directory / TRANSCRIPT_NAME
    recording = directory / RECORDING_NAME
    try:
        fields = transcript.ended(reason, None, interactions)
        text = transcript.line(_age(directory), "CLOSED", fields)
        with path.open("ab") as file:
            file.write(_newline_if_cut(path) + text.encode())
            file.flush()
            os.fsync(file.fileno())
        recorded = recording.exists()
        if recorded:
            _drop_cut_line(recording)
        directories.sync(directory)
        raw_size, raw_hash = hashed(raw_path)
        size, digest = hashed(path)
        recording_size, recording_hash = hashed(recording) if recorded else (0, None)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EvidenceError(f"evidence can't be kept: {error.strerror}") from None
    truncated = raw_size >= MOST_RAW_BYTES
    return Digests(
        *(raw_size, raw_hash, truncated, size, digest),
        *(recording_size, recording_hash, recorded),  # its end is missing
    )


def _age(directory: Path) -> float:
    """Seconds since the directory got its files."""
    return max(0.0, time.time() - directory.stat().st_mtime)


def _newline_if_cut(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"


def _drop_cut_line(path: Path) -> None:
    """Removes the last line of a recording if it is incomplete: players read whole lines only."""
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _STEP_BYTES)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
        os.fsync(file.fileno())
