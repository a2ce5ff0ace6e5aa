"""Evidence of oneshot tools: the file that a command was given to write, or what it printed.

`<state>/evidence/<session key>/<command id>/output`, for its owner only, without the session's
secrets. What a command leaves in place of its file is told and never followed.
"""

import asyncio
import hashlib
import logging
import os
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from orchestrator.budget import Kind
from orchestrator.errors import ConflictError, NotFoundError, PaddockError, TooLargeError
from orchestrator.keys import Principal
from orchestrator.sessions import registry
from orchestrator.sessions.cutting import Cutting
from orchestrator.sessions.execution import Executions
from orchestrator.sessions.files import Files
from orchestrator.sessions.recorder import TOOL_OUTPUT, Recorder
from orchestrator.sessions.requests import Kept
from orchestrator.sessions.session import Command, Session
from orchestrator.task_scope import TaskScope
from orchestrator.threads import Threads
from sandbox_agent.redaction import RedactedStream, Window

T = TypeVar("T")

log = logging.getLogger(__name__)

# As of a terminal's bytes.
MOST_BYTES = 64 * 1024 * 1024
OUTPUT_NAME = "output"
_DRAFT_NAME = ".output"
_SECONDS = 60.0
_DISK_SECONDS = 15.0
# Searched for secrets at once, beside the event loop.
_PIECE_BYTES = 64 * 1024
# Of all sessions: calls of the disk at once.
_MOST_THREADS = 8


class Captures:
    """Keeps evidence of commands when they have ended; `directory` is that of all evidence."""

    def __init__(
        self, files: Files, executions: Executions, recorder: Recorder, directory: Path
    ) -> None:
        self._files = files
        self._executions = executions
        self._recorder = recorder
        self._directory = directory
        self._threads = Threads("the evidence of commands", _MOST_THREADS)
        self._cutting = Cutting("pieces of evidence")
        self._tasks = TaskScope("what is kept of a command")

    @asynccontextmanager
    async def place(
        self, principal: Principal, session: Session, kept: Kept
    ) -> AsyncGenerator[None]:
        """Makes the directory of the command's file; it goes again where nothing is started.

        Raises: what `Files.mkdir` does.
        """
        if kept.file is None:
            yield
            return
        await self._files.mkdir(principal, session, _directory_of(kept.file))
        try:
            yield
        except BaseException:
            await self._remove(principal, session, kept.file)
            raise

    def follow(self, principal: Principal, session: Session, command: Command, kept: Kept) -> None:
        """Keeps what is to be kept of the command, as soon as it has ended."""
        command.keeping = self._tasks.begin(self._keep(principal, session, command, kept))

    async def close(self) -> None:
        """Ends what is still being kept."""
        await self._tasks.close()

    async def _keep(
        self, principal: Principal, session: Session, command: Command, kept: Kept
    ) -> None:
        await asyncio.shield(command.done)
        told: dict[str, Any] = {"bytes": 0, "sha256": None, "truncated": False, "reason": None}
        try:
            async with asyncio.timeout(_SECONDS):
                if kept.capture:
                    told |= await self._capture(principal, session, command, kept)
        except TimeoutError:
            told["reason"] = f"it was not read within {_SECONDS:g} s"
        except PaddockError as error:
            told["reason"] = error.detail
        except OSError as error:
            told["reason"] = f"it can't be kept: {error.strerror}"
        left = kept.file is not None and not await self._remove(principal, session, kept.file)
        told["left"] = left
        if kept.capture or left:
            await self._record(session, command, kept, told)
        if command.result is not None:
            command.result["evidence"] = session.secrets.cut_value(told)

    async def _record(
        self, session: Session, command: Command, kept: Kept, told: dict[str, Any]
    ) -> None:
        size, digest = told["bytes"], told["sha256"]
        found = {"output_bytes": size, "output_hash": digest, "truncated": told["truncated"]}
        try:
            await self._recorder.record(
                session,
                "command.evidence",
                actor="system",
                args={"command_id": command.id, "file": kept.file, "left": told["left"]},
                result=None if digest is None else found,
                error=told["reason"],
                command_id=command.id,
                effect=registry.counting(session.key, size),
            )
        except PaddockError as error:
            log.error("evidence of command %s is not on record: %s", command.id, error.detail)

    async def _capture(
        self, principal: Principal, session: Session, command: Command, kept: Kept
    ) -> dict[str, Any]:
        """The size and digest of what is kept. Raises: PaddockError, OSError, TimeoutError."""
        self._recorder.check_room(session)
        left = session.budget.left(Kind.AUDIT_BYTES)
        most = MOST_BYTES if left is None else min(left, MOST_BYTES)
        secrets = session.secrets
        directory = self._directory / session.key / command.id
        file, stream = _File(directory, kept.name), RedactedStream(lambda: secrets.redactor)
        if kept.file is None:
            pieces = self._printed(session, command)
        else:
            pieces = self._written(principal, session, kept.file, most)
        total = 0
        await self._call(file.begin)
        try:
            async with aclosing(pieces):
                async for piece in pieces:
                    total += len(piece)
                    if total > most:
                        raise TooLargeError(f"it has more than the {most} bytes that may be kept")
                    for start in range(0, len(piece), _PIECE_BYTES):
                        stream.add(piece[start : start + _PIECE_BYTES])
                        await self._release(session, stream, stream.window(), file)
            await self._release(session, stream, stream.window(last=True), file)
            size, digest = await self._call(file.finish)
        except BaseException:
            with suppress(PaddockError, OSError, TimeoutError):
                await self._call(file.discard)
            raise
        self._recorder.count(session, size, TOOL_OUTPUT)
        cut = kept.file is None and total < (command.result or {}).get("output_bytes", 0)
        return {"bytes": size, "sha256": digest, "truncated": cut}

    async def _release(
        self, session: Session, stream: RedactedStream, window: Window | None, file: "_File"
    ) -> None:
        """Writes what is known to have no secret in it, or has none any more."""
        if window is None:
            return
        sandbox = session.sandbox
        spent: Callable[[float], object] = _ignore if sandbox is None else sandbox.link.spend
        found = await self._cutting.spans(session.key, window, spent)
        await self._call(partial(file.add, stream.release(window, found)))

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
        """What is still there of it, of both streams, in its order."""
        after = 0
        while (command.result or {}).get("output_bytes"):
            page = await self._executions.output(
                session, command, after, 0.0, looks=True, whole=True
            )
            if page.lost:
                raise ConflictError("what the command printed is not there any more")
            for _, _, data in page.chunks:
                yield data
            if page.next <= after or not page.chunks:
                return
            after = page.next

    async def _remove(self, principal: Principal, session: Session, path: str) -> bool:
        """Whether neither the file nor its directory is there any more."""
        try:
            with suppress(NotFoundError):
                await self._files.delete(principal, session, path)
            with suppress(NotFoundError):
                await self._files.delete(principal, session, _directory_of(path))
        except PaddockError as error:
            log.info("session %s: %s is left: %s", session.id, path, error.detail)
            return False
        return True

    async def _call(self, function: Callable[[], T]) -> T:
        return await self._threads.call(function, _DISK_SECONDS)


class _File:
    """A file of evidence that is written in threads. Raises: OSError from every method."""

    def __init__(self, directory: Path, name: str | None) -> None:
        self._directory = directory
        self._link = None
        if name is not None and name != "{session_id}":
            self._link = directory.with_name(name.replace("{session_id}", directory.name))
        self._digest, self._size = hashlib.sha256(), 0
        self._fd = -1

    def begin(self) -> None:
        """Makes it under a name that is not its own."""
        # One by one: the mode of parents would be the default.
        for path in (self._directory.parent.parent, self._directory.parent):
            path.mkdir(mode=0o700, exist_ok=True)
        self._directory.mkdir(mode=0o700)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._directory / _DRAFT_NAME, flags, 0o600)

    def add(self, data: bytes) -> None:
        """More of what is kept."""
        self._digest.update(data)
        self._size += len(data)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def finish(self) -> tuple[int, str]:
        """Makes it durable and gives it its name: its size, and `sha256:…`."""
        os.fsync(self._fd)
        self._close()
        (self._directory / _DRAFT_NAME).rename(self._directory / OUTPUT_NAME)
        if self._link is not None:
            self._link.symlink_to(self._directory.name)
        return self._size, f"sha256:{self._digest.hexdigest()}"

    def discard(self) -> None:
        """Removes it."""
        self._close()
        for name in (_DRAFT_NAME, OUTPUT_NAME):
            (self._directory / name).unlink(missing_ok=True)
        self._directory.rmdir()

    def _close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _ignore(_seconds: float) -> None:
    """Nobody pays any more: the sandbox is gone."""


def _directory_of(path: str) -> str:
    return path.rpartition("/")[0]
