"""Saves sessions to a store, and reads them again."""

import asyncio
import logging

from paddock.app.agent import Runner
from paddock.app.hooks import AppHooks, asked, told
from paddock.app.session import AppSession
from paddock.app.store import AppSnapshot, SessionStore, read_snapshot

_log = logging.getLogger("paddock.app")


class Persistence:
    """Saves each session, one save at a time, and each time as the session is then."""

    def __init__(self, store: SessionStore, hooks: AppHooks, runner: Runner) -> None:
        self._store = store
        self._hooks = hooks
        self._runner = runner
        self._saving: dict[str, asyncio.Task[None]] = {}

    def save_later(self, session: AppSession) -> None:
        """Saves in the background, after what is being saved; a failure is logged."""
        before = self._saving.get(session.id)
        task = asyncio.create_task(self._save_after(before, session))
        self._saving[session.id] = task
        task.add_done_callback(lambda done: self._forget(session.id, done))

    async def settle(self, session_id: str) -> None:
        """Waits for the saves in the background."""
        while task := self._saving.get(session_id):
            await asyncio.wait({task})
            self._forget(session_id, task)

    async def save(self, session: AppSession) -> bool:
        """Saves now; False if a hook cancelled that. Raises: what the store raises."""
        snapshot = await self._runner.on_persist(session.ref, session.snapshot())
        answer = await asked(self._hooks.on_before_persist, session.id, snapshot)
        if answer is False:
            return False
        if isinstance(answer, AppSnapshot):
            snapshot = answer
        await self._store.save(session.id, snapshot.to_json())
        await told(self._hooks.on_after_persist, session.id, snapshot)
        return True

    async def load(self, session_id: str) -> AppSnapshot | None:
        """The stored session; None without one, or if a hook wants a new one.

        Raises: SnapshotError, and what the store raises.
        """
        text = await self._store.load(session_id)
        if text is None:
            return None
        answer = await asked(self._hooks.on_before_restore, session_id, text)
        if answer is False:
            return None
        return read_snapshot(answer if isinstance(answer, str) else text, session_id)

    async def delete(self, session_id: str) -> None:
        """Removes what is stored, after what is being saved."""
        await self.settle(session_id)
        await self._store.delete(session_id)

    async def _save_after(self, before: asyncio.Task[None] | None, session: AppSession) -> None:
        if before is not None:
            await asyncio.wait({before})
        try:
            await self.save(session)
        except Exception:  # noqa: BLE001 - a save in the background ends nothing
            _log.exception("session %s could not be saved", session.id)

    def _forget(self, session_id: str, task: asyncio.Task[None]) -> None:
        if self._saving.get(session_id) is task:
            del self._saving[session_id]
