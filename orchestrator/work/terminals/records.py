"""The terminals of a session as clients see them, also after their end."""

from collections.abc import AsyncGenerator, Mapping
from functools import partial
from pathlib import Path

from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.ground.store.database import Database
from orchestrator.ground.threads import Threads
from orchestrator.state.session import Session
from orchestrator.work.terminals import terminal_record
from orchestrator.work.terminals.evidence import DISK_SECONDS
from orchestrator.work.terminals.evidence_files import (
    RECORDING_NAME,
    TRANSCRIPT_NAME,
    EvidenceError,
)
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.terminal_record import TerminalRecord

_CHUNK_BYTES = 256 * 1024


class Records:
    """Looks terminals up by their session's key, which outlives the session."""

    def __init__(
        self,
        database: Database,
        directory: Path,
        live: Mapping[str, OpenTerminal],
        threads: Threads,
    ) -> None:
        self._database = database
        self._directory = directory
        self._live = live
        self._threads = threads

    async def list(self, session_key: str) -> list[TerminalRecord]:
        """The present and former terminals of a session, oldest first."""
        found = await self._database.browse(
            lambda connection: terminal_record.of_session(connection, session_key)
        )
        return [self._view(row) for row in found]

    async def get(self, session_key: str, terminal_id: str) -> TerminalRecord:
        """A terminal of a session. Raises: NotFoundError."""
        return self._view(await self._row(session_key, terminal_id))

    async def running(self, session: Session, terminal_id: str) -> OpenTerminal:
        """A live terminal. Raises: NotFoundError, ConflictError with the `reason`."""
        live = self._live.get(terminal_id)
        if live is not None and live.session is session:
            return live
        reason = (await self.get(session.key, terminal_id)).reason
        message = f"the terminal has ended ({reason}): open another one"
        raise ConflictError(message, pty=terminal_id, reason=reason)

    async def transcript(self, session_key: str, terminal_id: str) -> str:
        """A terminal's transcript so far, or the complete one after its end."""
        row = await self._row(session_key, terminal_id)
        path = self._directory / row.session_key / row.record.id / TRANSCRIPT_NAME
        try:
            data = await self._threads.call(path.read_bytes, DISK_SECONDS)
        except TimeoutError:
            raise EvidenceError("the transcript can't be read: the disk does not answer") from None
        except OSError:
            raise NotFoundError(f"the transcript of terminal {terminal_id} is gone") from None
        return data.decode()

    async def recording(self, session_key: str, terminal_id: str) -> AsyncGenerator[bytes, None]:
        """A terminal's recording so far, or the complete one after its end, in pieces.

        Raises: NotFoundError; while it is read, EvidenceError if the disk does not answer.
        """
        row = await self._row(session_key, terminal_id)
        path = self._directory / row.session_key / row.record.id / RECORDING_NAME
        return self._lines(path, await self._piece(path, 0))

    async def _lines(self, path: Path, piece: bytes) -> AsyncGenerator[bytes, None]:
        """Whole lines only: the last one may still be being written."""
        position, rest = 0, b""
        while piece:
            lines, newline, rest = (rest + piece).rpartition(b"\n")
            if newline:
                yield lines + newline
            position += len(piece)
            piece = await self._piece(path, position)

    async def _piece(self, path: Path, position: int) -> bytes:
        """The bytes from there on; the file is not open between two pieces."""
        try:
            return await self._threads.call(partial(_read, path, position), DISK_SECONDS)
        except TimeoutError:
            raise EvidenceError("the recording can't be read: the disk does not answer") from None
        except OSError:
            raise NotFoundError(f"terminal {path.parent.name} has no recording") from None

    def _view(self, row: terminal_record.TerminalRow) -> TerminalRecord:
        live = self._live.get(row.record.id)
        return row.record if live is None else live.view()

    async def _row(self, session_key: str, terminal_id: str) -> terminal_record.TerminalRow:
        row = await self._database.read(
            lambda connection: terminal_record.one(connection, session_key, terminal_id)
        )
        if row is None:
            raise NotFoundError(f"this session has no terminal {terminal_id[:128]}")
        return row


def _read(path: Path, position: int) -> bytes:
    with path.open("rb") as file:
        file.seek(position)
        return file.read(_CHUNK_BYTES)
