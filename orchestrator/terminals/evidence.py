"""The evidence of a terminal: every byte of its tool's output, and a transcript for humans.

`<state>/evidence/<session key>/<terminal id>/raw` and `transcript.log`, for their owner only. They
are written on the host, out of reach of the tool's sandbox, and are kept as long as the audit
ledger. A disk that hangs blocks only its threads, of which there are few. What could not be written
in time is lost, and the terminal ends.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from orchestrator.audit.recorder import TOOL_OUTPUT
from orchestrator.errors import AuditUnavailableError
from orchestrator.store import directories
from orchestrator.terminals import transcript
from orchestrator.threads import Threads
from sandbox_agent.redaction import Redactor

# The first raw bytes are kept; all are counted.
MOST_RAW_BYTES = 64 * 1024 * 1024
# Refusals are free, so a client could otherwise extend a transcript endlessly. A terminal with a
# full transcript accepts no more lines.
MOST_TRANSCRIPT_BYTES = 16 * 1024 * 1024
# Reserved, so that the last lines always fit.
_RESERVED_BYTES = 4096
# A disk that takes longer for one piece counts as not answering.
DISK_SECONDS = 15.0
# Concurrent calls of the disk, for all terminals.
MOST_THREADS = 16
_HANGS = "evidence can't be kept: the disk does not answer"
RAW_NAME = "raw"
TRANSCRIPT_NAME = "transcript.log"


class EvidenceError(AuditUnavailableError):
    """The events of a terminal can't be recorded, so nothing may happen in it."""


class Digests(NamedTuple):
    """The finished files: their sizes in bytes, and `sha256:…` of their contents."""

    raw_bytes: int
    raw_hash: str
    raw_truncated: bool
    transcript_bytes: int
    transcript_hash: str


def disk_threads() -> Threads:
    """The threads that call the disk for all terminals."""
    return Threads("the evidence of terminals", MOST_THREADS)


class Evidence:
    """The files of one live terminal. Raises: EvidenceError from every method.

    Output and notes stay in memory until `flush` writes them; a caller that adds something must
    wait for that.
    """

    def __init__(
        self,
        directory: Path,
        redactor: Callable[[], Redactor] = lambda: Redactor(),
        count: Callable[[int, str | None], None] = lambda size, what: None,
        *,
        capture: bool = True,
        name: str | None = None,
        threads: Threads | None = None,
    ) -> None:
        """Creates the files, which must not exist. Blocks, see `open`.

        Nothing that `redactor` finds reaches the transcript. `threads` run later blocking calls;
        None: its own.

        `count` is called with the number of written bytes, and whether they are TOOL_OUTPUT.
        Without `capture`, raw bytes are only counted. `name` is an additional name next to the
        directory, with the terminal's id for `{session_id}`.
        """
        self.directory = directory
        self._threads = threads or disk_threads()
        # The data to write, and the file for each.
        self._waiting: list[tuple[int, bytes]] = []
        self._writing = asyncio.Lock()
        # The latest call of the disk, which may never return.
        self._call_of_disk: asyncio.Future[None] | None = None
        # Why nothing more can be kept, if so.
        self._failure: str | None = None
        self._count = count
        self._most_raw = MOST_RAW_BYTES if capture else 0
        self._link = None
        if name is not None and name != "{session_id}":
            self._link = directory.with_name(name.replace("{session_id}", directory.name))
        self._redactor = redactor
        self._started = time.monotonic()
        self._raw_bytes = self._raw_total = self._transcript_bytes = 0
        self._raw_hash, self._transcript_hash = hashlib.sha256(), hashlib.sha256()
        self._raw = self._transcript = -1
        try:
            directories.make(directory)
            self._raw = _create(directory / RAW_NAME)
            self._transcript = _create(directory / TRANSCRIPT_NAME)
            if self._link is not None:
                self._link.symlink_to(directory.name)
        except OSError as error:
            self.release()
            raise EvidenceError(f"evidence can't be kept: {error.strerror}") from None

    @classmethod
    async def open(cls, make: Callable[[], "Evidence"], threads: Threads) -> "Evidence":
        """Runs `make` in a thread; a result that comes too late is discarded."""
        try:
            outcome = await threads.begin(make, DISK_SECONDS)
        except TimeoutError:
            raise EvidenceError(_HANGS) from None
        try:
            async with asyncio.timeout(DISK_SECONDS):
                return await asyncio.shield(outcome)
        except BaseException as error:
            outcome.add_done_callback(_release_late)
            if isinstance(error, TimeoutError):
                raise EvidenceError(_HANGS) from None
            raise

    def raw(self, data: bytes) -> None:
        """Adds tool output, which must not contain secrets any more."""
        self._raw_total += len(data)
        kept = data[: max(0, self._most_raw - self._raw_bytes)]
        if kept:
            self._waiting.append((self._raw, kept))
            self._raw_bytes += len(kept)
            self._raw_hash.update(kept)
            self._count(len(kept), TOOL_OUTPUT)

    def note(self, event: str, fields: Sequence[str], *, last: bool = False) -> None:
        """Adds a line to the transcript; the `last` one uses the reserved room."""
        line = transcript.line(time.monotonic() - self._started, event, fields)
        text = self._redactor().text(line).encode()
        room = MOST_TRANSCRIPT_BYTES - self._transcript_bytes - (0 if last else _RESERVED_BYTES)
        if len(text) > room:
            raise EvidenceError("the terminal's transcript is full: open another terminal")
        self._waiting.append((self._transcript, text))
        self._transcript_bytes += len(text)
        self._transcript_hash.update(text)
        self._count(len(text), None)

    @property
    def bytes(self) -> int:
        """The number of bytes written or about to be written."""
        return self._raw_bytes + self._transcript_bytes

    async def flush(self) -> None:
        """Writes pending output and notes."""
        async with self._writing:
            pieces, self._waiting = self._waiting, []
            if pieces:
                await self._call(partial(_write, pieces))

    async def _call(self, function: Callable[[], None]) -> None:
        """Runs a call in a thread, after earlier ones; a failure is permanent."""
        if self._failure is not None:
            raise EvidenceError(self._failure)
        self._failure = _HANGS  # until it has returned
        before = self._call_of_disk
        try:
            async with asyncio.timeout(DISK_SECONDS):
                if before is not None:
                    await asyncio.shield(before)
                self._call_of_disk = await self._threads.begin(function, DISK_SECONDS)
                await asyncio.shield(self._call_of_disk)
        except TimeoutError:
            raise EvidenceError(_HANGS) from None
        except OSError as error:
            self._failure = f"evidence can't be kept: {error.strerror}"
            raise EvidenceError(self._failure) from None
        except asyncio.CancelledError:
            if self._call_of_disk is not before:  # the call continues
                self._failure = None
            raise
        self._failure = None

    async def finish(self) -> Digests:
        """Makes the files durable and closes them."""
        try:
            await self.flush()
            await self._call(partial(_sync, self.directory, (self._raw, self._transcript)))
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
        """Closes the files once nothing writes to them; does nothing when repeated."""
        descriptors = [number for number in (self._raw, self._transcript) if number >= 0]
        self._raw = self._transcript = -1
        self._waiting = []
        call = self._call_of_disk
        if call is None or call.done():
            _close(descriptors)
        else:
            call.add_done_callback(lambda _: _close(descriptors))

    async def discard(self) -> None:
        """Removes the files of a terminal that was never opened, as far as possible."""
        self.release()
        with suppress(EvidenceError):
            await self._call(self._remove)

    def _remove(self) -> None:
        for name in (RAW_NAME, TRANSCRIPT_NAME):
            (self.directory / name).unlink()
        self.directory.rmdir()
        if self._link is not None:
            self._link.unlink()


def finish_abandoned(directory: Path, reason: str, interactions: int) -> Digests | None:
    """Finishes files that a killed control plane left; None if there are none.

    Call it in a thread. Raises: EvidenceError.
    """
    raw_path, path = directory / RAW_NAME, directory / TRANSCRIPT_NAME
    try:
        fields = transcript.ended(reason, None, interactions)
        text = transcript.line(_age(directory), "CLOSED", fields)
        with path.open("ab") as file:
            file.write(_newline_if_cut(path) + text.encode())
            file.flush()
            os.fsync(file.fileno())
        directories.sync(directory)
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


def _write(pieces: Sequence[tuple[int, bytes]]) -> None:
    """Runs in a thread. Raises: OSError."""
    for descriptor, piece in pieces:
        rest = piece
        while rest:
            rest = rest[os.write(descriptor, rest) :]


def _sync(directory: Path, descriptors: Sequence[int]) -> None:
    """Runs in a thread. Raises: OSError."""
    for descriptor in descriptors:
        os.fsync(descriptor)
    directories.sync(directory)


def _close(descriptors: Sequence[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)


def _release_late(outcome: "asyncio.Future[Evidence]") -> None:
    """Closes files that came too late; they are empty and stay, like those left by a kill."""
    if not outcome.cancelled() and outcome.exception() is None:
        outcome.result().release()
