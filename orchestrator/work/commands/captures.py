"""Evidence of oneshot tools: a command's output file, or what it printed.

It is stored in `<state>/evidence/<session key>/<command id>/output`, for its owner only, without
the session's secrets. If a command leaves something other than a file there, this is reported and
never followed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

from orchestrator.ground.errors import (
    AuditUnavailableError,
    ConflictError,
    NotFoundError,
    PaddockError,
    TooLargeError,
)
from orchestrator.ground.events import EventDraft, Made
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Threads
from orchestrator.record.audit.recorder import TOOL_OUTPUT, Recorder
from orchestrator.record.audit.secret_cutting import SecretCutting
from orchestrator.rules.access.keys import Principal
from orchestrator.state import session_rows
from orchestrator.state.command import Command, KeptEvidence
from orchestrator.state.requests import Kept
from orchestrator.state.session import Session
from orchestrator.work.commands import running_command
from orchestrator.work.commands.evidence_file import EvidenceFile
from orchestrator.work.files.files import Files
from paddock.contract.words import Kind
from sandbox_agent.decide.redaction import RedactedStream, Window

log = logging.getLogger(__name__)

# The same limit as for a terminal's bytes.
MOST_BYTES = 64 * 1024 * 1024
_SECONDS = 60.0
_DISCARD_SECONDS = 15.0
# Bytes searched for secrets at a time, off the event loop.
_PIECE_BYTES = 64 * 1024
# Concurrent calls of the disk, for all sessions.
_MOST_THREADS = 8
_NO_EVIDENCE = KeptEvidence(0, None, truncated=False, reason=None, left=False)


class Captures:
    """Keeps evidence of commands after they end; `directory` holds all evidence."""

    def __init__(self, files: Files, recorder: Recorder, directory: Path) -> None:
        self._files = files
        self._recorder = recorder
        self._directory = directory
        self._threads = Threads("the evidence of commands", _MOST_THREADS)
        self._cutting = SecretCutting("pieces of evidence")
        self._tasks = TaskScope("what is kept of a command")

    @asynccontextmanager
    async def following(
        self, principal: Principal, session: Session, kept: Kept
    ) -> AsyncGenerator[None]:
        """Makes the directory of the command's file, and keeps the evidence when it ends.

        If nothing is started, the directory is removed. If the command may be running, it is
        followed even without an answer. Raises: the errors of `Files.mkdir`.
        """
        try:
            if kept.file is not None:
                await self._files.mkdir(principal, session, _directory_of(kept.file))
            yield
        finally:
            command = session.commands.get(kept.command_id)
            if command is not None and command.dispatched:
                self._follow(principal, session, command, kept)
            elif kept.file is not None:
                await self._tasks.shield(self._remove(principal, session, kept.file))

    def _follow(self, principal: Principal, session: Session, command: Command, kept: Kept) -> None:
        if kept.file is not None or kept.capture:
            command.keeping = self._tasks.spawn(self._keep(principal, session, command, kept))
            session.commands[command.id] = command  # it may have ended, but is not settled now

    async def close(self) -> None:
        """Ends pending work on evidence."""
        await self._tasks.close()

    async def _keep(
        self, principal: Principal, session: Session, command: Command, kept: Kept
    ) -> None:
        await asyncio.shield(command.done)
        evidence, file = _NO_EVIDENCE, self._file(session, command, kept)
        try:
            if kept.capture:
                evidence = await self._captured(principal, session, command, kept, file)
            left = kept.file is not None and not await self._remove(principal, session, kept.file)
            evidence = evidence._replace(left=left)
        except BaseException:
            await self._discard(file)
            raise
        unrecorded = None
        if kept.capture or left:
            unrecorded = await self._record(session, command, kept, evidence)
        if unrecorded is not None:
            # It may be recorded all the same, and must exist then: the next start checks.
            if not isinstance(unrecorded, AuditUnavailableError):
                await self._discard(file)
            reason = f"it can't be put on record: {unrecorded.detail}"
            evidence = _NO_EVIDENCE._replace(reason=reason, left=left)
        if command.result is not None:
            reason = session.secrets.cut_value(evidence.reason)
            command.result.evidence = evidence._replace(reason=reason)

    def _file(self, session: Session, command: Command, kept: Kept) -> EvidenceFile:
        def pay(size: int) -> None:
            if size > 0:
                self._recorder.check_room(session)
                left = session.budget.left(Kind.AUDIT_BYTES)
                if left is not None and size >= left:  # otherwise the session would end
                    raise TooLargeError("it is larger than the rest of the session's audit_bytes")
            self._recorder.count(session, size, TOOL_OUTPUT)

        directory = self._directory / session.key / command.id
        return EvidenceFile(directory, kept.name, self._threads, pay)

    async def _record(
        self, session: Session, command: Command, kept: Kept, evidence: KeptEvidence
    ) -> PaddockError | None:
        """Records the kept evidence. Returns why it can't be recorded, if so."""
        found = {
            "output_bytes": evidence.bytes,
            "output_hash": evidence.sha256,
            "truncated": evidence.truncated,
        }
        try:
            await self._recorder.record(
                session,
                EventDraft(
                    "command.evidence",
                    actor="system",
                    made=Made(
                        {"command_id": command.id, "file": kept.file, "left": evidence.left},
                        {} if evidence.sha256 is None else found,
                    ),
                    error=evidence.reason,
                    command_id=command.id,
                ),
                effect=session_rows.counting(session.key, evidence.bytes),
            )
        except PaddockError as error:
            # The end of a session has already reported this for its commands.
            level = logging.INFO if session.over.done() else logging.ERROR
            message = "evidence of command %s can't be put on record: %s"
            log.log(level, message, command.id, error.detail)
            return error
        return None

    async def _captured(
        self,
        principal: Principal,
        session: Session,
        command: Command,
        kept: Kept,
        file: EvidenceFile,
    ) -> KeptEvidence:
        """Describes the kept file, or why there is none."""
        try:
            # One at a time: a session's own calls must not take others' disk time.
            async with session.capturing, asyncio.timeout(_SECONDS):
                return await self._capture(principal, session, command, kept, file)
        except TimeoutError:
            reason = f"it was not read within {_SECONDS:g} s"
        except PaddockError as error:
            reason = error.detail
        except OSError as error:
            reason = f"it can't be kept: {error.strerror}"
        await self._discard(file)
        return _NO_EVIDENCE._replace(reason=reason)

    async def _discard(self, file: EvidenceFile) -> None:
        """Removes the file, but not before an earlier call of the disk has returned."""

        async def discard() -> None:
            try:
                await file.discard()
            except OSError as error:
                log.error("discarded evidence can't be removed: %s", error)

        with suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                await self._tasks.shield(discard())

    async def _capture(
        self,
        principal: Principal,
        session: Session,
        command: Command,
        kept: Kept,
        file: EvidenceFile,
    ) -> KeptEvidence:
        """Keeps what it has printed or written. Raises: PaddockError, OSError, TimeoutError."""
        self._recorder.check_room(session)
        left = session.budget.left(Kind.AUDIT_BYTES)
        most = MOST_BYTES if left is None else min(left, MOST_BYTES)
        secrets = session.secrets
        stream = RedactedStream(lambda: secrets.redactor)
        if kept.file is None:
            pieces = self._printed(session, command)
        else:
            pieces = self._written(principal, session, kept.file, most)
        total = 0
        await file.begin()
        async with aclosing(pieces):
            async for piece in pieces:
                total += len(piece)
                if total > most:
                    raise TooLargeError(f"it has more than the {most} bytes that may be kept")
                for start in range(0, len(piece), _PIECE_BYTES):
                    stream.add(piece[start : start + _PIECE_BYTES])
                    await self._release(session, stream, stream.window(), file)
        await self._release(session, stream, stream.window(last=True), file)
        size, digest = await file.finish()
        cut = kept.file is None and total < command.output_bytes
        return KeptEvidence(size, digest, cut, None, left=False)

    async def _release(
        self, session: Session, stream: RedactedStream, window: Window | None, file: EvidenceFile
    ) -> None:
        """Writes the part of the stream that has no secrets any more."""
        if window is None:
            return
        sandbox = session.sandbox
        spent: Callable[[float], object] = _ignore if sandbox is None else sandbox.link.spend
        found = await self._cutting.spans(session.key, window, spent)
        await file.add(stream.release(window, found))

    async def _written(
        self, principal: Principal, session: Session, path: str, most: int
    ) -> AsyncGenerator[bytes]:
        download = await self._files.read(principal, session, path, links=False)
        try:
            if download.size > most:
                raise TooLargeError(f"it has more than the {most} bytes that may be kept")
            async for piece in download.chunks():
                yield piece
        finally:
            await download.close()

    async def _printed(self, session: Session, command: Command) -> AsyncGenerator[bytes]:
        """The retained output of both streams, in order."""
        after = 0
        while command.output_bytes:
            page = await running_command.read_output(
                session, command, after, 0.0, looks=True, whole=True
            )
            if page.lost:
                raise ConflictError("the command's output is no longer available")
            for _, _, data in page.chunks:
                yield data
            if page.next <= after or not page.chunks:
                return
            after = page.next

    async def _remove(self, principal: Principal, session: Session, path: str) -> bool:
        """Whether the file and its directory are gone."""
        try:
            with suppress(NotFoundError):
                await self._files.delete(principal, session, path)
            with suppress(NotFoundError):
                await self._files.delete(principal, session, _directory_of(path))
        except PaddockError as error:
            log.info("session %s: %s is left: %s", session.id, path, error.detail)
            return False
        return True


def _ignore(_seconds: float) -> None:
    """Does nothing: the sandbox is gone, so there is nobody to charge."""


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]
