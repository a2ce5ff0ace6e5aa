"""Durable marks of sessions with counted refusals, in case the control plane is killed."""

import sqlite3

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.ground.events import now
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect, executing


class RefusalMarks:
    """One mark per session: if counted refusals were not recorded, a gap reports it later."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def set(self, session_key: str) -> None:
        """Marks that refusals are being counted. Raises: AuditUnavailableError."""
        await self._write(_setting(session_key, now()))

    async def clear(self, session_key: str) -> None:
        """Removes the mark, because all are recorded. Raises: AuditUnavailableError."""
        await self._write(clearing(session_key))

    async def _write(self, effect: Effect) -> None:
        try:
            await self._database.write(effect)
        except StoreError as error:
            raise AuditUnavailableError(f"the audit ledger can't be written: {error}") from error


def clearing(session_key: str) -> Effect:
    """An effect that removes the mark, for when nothing is missing or the gap is recorded."""
    return _setting(session_key, None)


def left(connection: sqlite3.Connection) -> dict[str, str]:
    """The times since which refusals were counted whose number is lost, by session key."""
    return dict(
        connection.execute(
            "SELECT key, refusals_since FROM sessions WHERE refusals_since IS NOT NULL"
        )
    )


def _setting(session_key: str, since: str | None) -> Effect:
    return executing("UPDATE sessions SET refusals_since = ? WHERE key = ?", (since, session_key))
