"""What is kept of a terminal: every byte that its tool said, and a transcript for people.

`<state>/evidence/<session key>/<terminal id>/raw` and `transcript.log`, for their owner only.
They are written on the host, out of reach of what runs beside the tool, and are kept as the
audit ledger is.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from orchestrator.errors import AuditUnavailableError
from orchestrator.sessions.recorder import TOOL_OUTPUT
from orchestrator.terminals import transcript
from sandbox_agent.redaction import RedactedStream, Redactor

# Of the raw bytes the first ones are kept; all are counted.
MOST_RAW_BYTES = 64 * 1024 * 1024
# Refusals are free, so that a client could write a transcript without end: a terminal whose
# transcript is full is not interacted with any more.
MOST_TRANSCRIPT_BYTES = 16 * 1024 * 1024
# The last lines always fit.
_RESERVED_BYTES = 4096
RAW_NAME = "raw"
TRANSCRIPT_NAME = "transcript.log"


class EvidenceError(AuditUnavailableError):
    """What happens in a terminal can't be kept, so nothing may happen in it."""


class Digests(NamedTuple):
    """The finished files: their sizes in bytes and `sha256:…` of their content."""

    raw_bytes: int
    raw_hash: str
    raw_truncated: bool
    transcript_bytes: int
    transcript_hash: str

    def public(self) -> dict[str, object]:
        """As a plain object."""
        return self._asdict()


class Evidence:
    """The files of one terminal, while it lives. Raises: EvidenceError from every method."""

    def __init__(
        self,
        directory: Path,
        redactor: Callable[[], Redactor] = lambda: Redactor(),
        count: Callable[[int, str | None], None] = lambda size, what: None,
        *,
        capture: bool = True,
        name: str | None = None,
    ) -> None:
        """Makes the files, which must not be there; nothing that `redactor` finds gets in.

        `count` is told of the bytes that are written, and whether they are TOOL_OUTPUT. Without
        `capture` the raw bytes are counted only. `name`: a further name beside the directory's
        own, with the terminal's id for `{session_id}`.
        """
        self.directory = directory
        self._count = count
        self._most_raw = MOST_RAW_BYTES if capture else 0
        self._link = None
        if name is not None and name != "{session_id}":
            self._link = directory.with_name(name.replace("{session_id}", directory.name))
        self._redactor = redactor
        self._said = RedactedStream(redactor)
        self._started = time.monotonic()
        self._raw_bytes = self._raw_total = self._transcript_bytes = 0
        self._raw_hash, self._transcript_hash = hashlib.sha256(), hashlib.sha256()
        self._raw = self._transcript = -1
        try:
            # One by one: the mode of parents would be the default.
            for path in (directory.parent.parent, directory.parent):
                path.mkdir(mode=0o700, exist_ok=True)
            directory.mkdir(mode=0o700)
            self._raw = _create(directory / RAW_NAME)
            self._transcript = _create(directory / TRANSCRIPT_NAME)
            if self._link is not None:
                self._link.symlink_to(directory.name)
        except OSError as error:
            self.release()
            raise EvidenceError(f"evidence can't be kept: {error.strerror}") from None

    def raw(self, data: bytes) -> None:
        """The tool said this; what could be part of a secret is written with the next line."""
        self._keep(self._said.feed(data))

    def _keep(self, data: bytes) -> None:
        self._raw_total += len(data)
        kept = data[: max(0, self._most_raw - self._raw_bytes)]
        if kept:
            _write(self._raw, kept)
            self._raw_bytes += len(kept)
            self._raw_hash.update(kept)
            self._count(len(kept), TOOL_OUTPUT)

    def note(self, event: str, fields: Sequence[str], *, last: bool = False) -> None:
        """A line of the transcript; the `last` one has room when others have none."""
        self._keep(self._said.finish())
        line = transcript.line(time.monotonic() - self._started, event, fields)
        text = self._redactor().text(line).encode()
        room = MOST_TRANSCRIPT_BYTES - self._transcript_bytes - (0 if last else _RESERVED_BYTES)
        if len(text) > room:
            raise EvidenceError("the terminal's transcript is full: open another terminal")
        _write(self._transcript, text)
        self._transcript_bytes += len(text)
        self._transcript_hash.update(text)
        self._count(len(text), None)

    @property
    def bytes(self) -> int:
        """What has been written."""
        return self._raw_bytes + self._transcript_bytes

    async def finish(self) -> Digests:
        """Makes the files durable and lets go of them."""
        try:
            for descriptor in (self._raw, self._transcript):
                await asyncio.to_thread(os.fsync, descriptor)
        except OSError as error:
            raise EvidenceError(f"evidence can't be kept: {error.strerror}") from None
        finally:
            self.release()
        return Digests(
            self._raw_bytes,
            f"sha256:{self._raw_hash.hexdigest()}",
            self._raw_bytes < self._raw_total,
            self._transcript_bytes,
            f"sha256:{self._transcript_hash.hexdigest()}",
        )

    def release(self) -> None:
        """Closes the files; once more does nothing."""
        for descriptor in (self._raw, self._transcript):
            if descriptor >= 0:
                os.close(descriptor)
        self._raw = self._transcript = -1

    def discard(self) -> None:
        """Removes the files of a terminal that never was."""
        self.release()
        with suppress(OSError):
            for name in (RAW_NAME, TRANSCRIPT_NAME):
                (self.directory / name).unlink()
            self.directory.rmdir()
            if self._link is not None:
                self._link.unlink()


def finish_abandoned(directory: Path, reason: str, interactions: int) -> Digests | None:
    """Ends the files that a control plane left when it was killed; None where there are none.

    To be called in a thread. Raises: EvidenceError.
    """
    raw_path, path = directory / RAW_NAME, directory / TRANSCRIPT_NAME
    try:
        fields = transcript.ended(reason, None, interactions)
        text = transcript.line(_age(directory), "CLOSED", fields)
        with path.open("ab") as file:
            file.write(_newline_if_cut(path) + text.encode())
            file.flush()
            os.fsync(file.fileno())
        raw_size, raw_hash = _digest(raw_path)
        size, digest = _digest(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise EvidenceError(f"evidence can't be kept: {error.strerror}") from None
    return Digests(raw_size, raw_hash, raw_size >= MOST_RAW_BYTES, size, digest)


def _age(directory: Path) -> float:
    """Seconds since the directory got its files."""
    return max(0.0, time.time() - directory.stat().st_mtime)


def _newline_if_cut(path: Path) -> bytes:
    with path.open("rb") as file:
        if file.seek(0, os.SEEK_END) == 0:
            return b""
        file.seek(-1, os.SEEK_END)
        return b"" if file.read(1) == b"\n" else b"\n"


def _digest(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return file.tell(), f"sha256:{digest}"


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, 0o600)


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError as error:
        raise EvidenceError(f"evidence can't be kept: {error.strerror}") from None
