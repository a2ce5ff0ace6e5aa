"""The evidence of a terminal: what its program printed, a transcript for humans, a recording.

`<state>/evidence/<session key>/<terminal id>/raw`, `transcript.log` and `recording.cast`, for their
owner only. They are written on the host, out of reach of the program's sandbox, and are kept as
long as the audit ledger. A disk that hangs blocks only its threads, of which there are few. What
could not be written in time is lost, and the terminal ends.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from orchestrator.ground.store import directories
from orchestrator.ground.threads import Threads
from orchestrator.record.audit.recorder import TOOL_OUTPUT
from orchestrator.work.commands.evidence_file import additional_name
from orchestrator.work.terminals import evidence_files, transcript
from orchestrator.work.terminals.asciicast import Recording
from orchestrator.work.terminals.evidence_files import (
    MOST_RAW_BYTES,
    RAW_NAME,
    RECORDING_NAME,
    TRANSCRIPT_NAME,
    Digests,
    EvidenceError,
    KeptFile,
)
from sandbox_agent.decide.redaction import Redactor

# Refusals are free, so a client could otherwise extend a transcript endlessly. A terminal with a
# full transcript accepts no more lines.
MOST_TRANSCRIPT_BYTES = 16 * 1024 * 1024
# What is typed after the recording's output has been cut is still recorded, up to this size; then
# nothing more is typed.
MOST_RECORDING_BYTES = MOST_RAW_BYTES + 16 * 1024 * 1024
# Reserved, so that the last lines always fit.
_RESERVED_BYTES = 4096
# A disk that takes longer for one piece counts as not answering.
DISK_SECONDS = 15.0
# Concurrent calls of the disk, for all terminals.
MOST_THREADS = 16
_HANGS = "evidence can't be kept: the disk does not answer"


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
        recording: Recording | None = None,
        name: str | None = None,
        threads: Threads | None = None,
    ) -> None:
        """Creates the files, which must not exist. Blocks, see `open`.

        Nothing that `redactor` finds reaches the transcript. `threads` run later blocking calls;
        None: its own.

        `count` is called with the number of written bytes, and whether they are TOOL_OUTPUT.
        Without `capture`, raw bytes are only counted. `recording` None: nothing is recorded. For
        `name`, see `additional_name`.
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
        self._link = additional_name(directory, name)
        self._redactor = redactor
        self._started = time.monotonic()
        self._raw_total = 0
        # Whether output is missing in the recording.
        self._cut = False
        self._cast = recording
        self._files: list[KeptFile] = []
        try:
            directories.make(directory)
            self._raw = self._create(RAW_NAME)
            self._transcript = self._create(TRANSCRIPT_NAME)
            self._recording = None if recording is None else self._create(RECORDING_NAME)
            if self._link is not None:
                self._link.symlink_to(directory.name)
        except OSError as error:
            self.release()
            raise EvidenceError(f"evidence can't be kept: {error.strerror}") from None

    def _create(self, name: str) -> KeptFile:
        file = KeptFile(self.directory / name)
        self._files.append(file)
        return file

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

    def begin(self) -> None:
        """Begins the recording, if there is to be one."""
        if self._cast is not None:
            self._record(self._cast.header(int(time.time())), None)

    def raw(self, data: bytes) -> None:
        """Adds output, which must not contain secrets any more."""
        self._raw_total += len(data)
        kept = data[: max(0, self._most_raw - self._raw.bytes)]
        if kept:
            self._add(self._raw, kept, TOOL_OUTPUT)
        if self._recording is not None and self._cast is not None:
            line = self._cast.output(self._seconds, data)
            self._cut = self._cut or self._recording.bytes + len(line) > MOST_RAW_BYTES
            if not self._cut:
                self._record(line, TOOL_OUTPUT)

    def typed(self, data: bytes) -> None:
        """Records what is typed, which must not contain secrets any more."""
        if self._cast is not None:
            self._record_input(self._cast.input(self._seconds, data))

    def resized(self, columns: int, rows: int) -> None:
        """Records another size of the terminal."""
        if self._cast is not None:
            self._record_input(self._cast.resize(self._seconds, columns, rows))

    def _record_input(self, line: bytes) -> None:
        recorded = 0 if self._recording is None else self._recording.bytes
        if recorded + len(line) > MOST_RECORDING_BYTES:
            raise EvidenceError("the terminal's recording is full: open another terminal")
        self._record(line, None)

    def _record(self, line: bytes, what: str | None) -> None:
        if self._recording is not None and line:
            self._add(self._recording, line, what)

    def note(self, event: str, fields: Sequence[str], *, last: bool = False) -> None:
        """Adds a line to the transcript; the `last` one uses the reserved room."""
        line = transcript.line(self._seconds, event, fields)
        text = self._redactor().text(line).encode()
        room = MOST_TRANSCRIPT_BYTES - self._transcript.bytes - (0 if last else _RESERVED_BYTES)
        if len(text) > room:
            raise EvidenceError("the terminal's transcript is full: open another terminal")
        self._add(self._transcript, text, None)

    def _add(self, file: KeptFile, data: bytes, what: str | None) -> None:
        self._waiting.append(file.added(data))
        self._count(len(data), what)

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def bytes(self) -> int:
        """The number of bytes written or about to be written."""
        return sum(file.bytes for file in self._files)

    async def flush(self) -> None:
        """Writes pending output and notes."""
        async with self._writing:
            pieces, self._waiting = self._waiting, []
            if pieces:
                await self._call(partial(evidence_files.write, pieces))

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
        if self._cast is not None:
            self._record(self._cast.end(self._seconds), None)
        try:
            await self.flush()
            descriptors = [file.descriptor for file in self._files]
            await self._call(partial(evidence_files.sync, self.directory, descriptors))
        finally:
            self.release()
        recording = self._recording
        return Digests(
            self._raw.bytes,
            self._raw.digest,
            self._raw.bytes < self._raw_total,
            self._transcript.bytes,
            self._transcript.digest,
            0 if recording is None else recording.bytes,
            None if recording is None else recording.digest,
            self._cut,
        )

    def release(self) -> None:
        """Closes the files once nothing writes to them; does nothing when repeated."""
        descriptors = [file.descriptor for file in self._files if file.descriptor >= 0]
        for file in self._files:
            file.descriptor = -1
        self._waiting = []
        call = self._call_of_disk
        if call is None or call.done():
            evidence_files.close(descriptors)
        else:
            call.add_done_callback(lambda _: evidence_files.close(descriptors))

    async def discard(self) -> None:
        """Removes the files of a terminal that was never opened, as far as possible."""
        self.release()
        with suppress(EvidenceError):
            await self._call(self._remove)

    def _remove(self) -> None:
        for file in self._files:
            file.path.unlink()
        self.directory.rmdir()
        if self._link is not None:
            self._link.unlink()


def _release_late(outcome: "asyncio.Future[Evidence]") -> None:
    """Closes files that came too late; they are empty and stay, like those left by a kill."""
    if not outcome.cancelled() and outcome.exception() is None:
        outcome.result().release()
