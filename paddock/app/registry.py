"""The sessions in memory: found, restored, and evicted, the least recently used first."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from paddock.app.hooks import told
from paddock.app.persistence import Persistence
from paddock.app.session import AppSession
from paddock.app.settings import AppSettings


class AppBusyError(RuntimeError):
    """As many sessions are running as may be in memory."""


@dataclass(slots=True)
class _Held:
    session: AppSession
    used: float


class Registry:
    """Holds sessions in the order of their use."""

    def __init__(
        self,
        settings: AppSettings,
        persistence: Persistence,
        max_active: int,
        idle_timeout: float,
        clock: Callable[[], float],
    ) -> None:
        self._settings = settings
        self._persistence = persistence
        self._max_active = max_active
        self._idle_timeout = idle_timeout
        self._clock = clock
        self._held: dict[str, _Held] = {}
        # Finding, restoring and evicting exclude each other: a session is in memory once.
        self._lock = asyncio.Lock()

    @property
    def ids(self) -> tuple[str, ...]:
        """The least recently used first."""
        return tuple(self._held)

    async def session(self, id: str) -> AppSession:
        """The session with that id: from memory, from the store, or new."""
        async with self._lock:
            held = self._held.get(id)
            # One that is being closed is closed first: its sandbox has the same id.
            if held is not None and held.session.status == "closed":
                await held.session.close()
                held = None
            if held is not None:
                self.touched(id)
                return held.session
            return await self._enter(id)

    async def _enter(self, id: str) -> AppSession:
        snapshot = await self._persistence.load(id)
        await self._make_room()
        session = AppSession(id, self._settings, self, snapshot=snapshot)
        if snapshot is not None:
            await self._settings.runner.on_restore(session.ref, snapshot)
        self._held[id] = _Held(session, self._clock())
        hooks = self._settings.hooks
        await told(hooks.on_session_create, id)
        if snapshot is not None:
            await told(hooks.on_after_restore, id, snapshot)
        return session

    async def _make_room(self) -> None:
        """Raises: AppBusyError, and what saving or closing raised."""
        while 0 < self._max_active <= len(self._held):
            idle = [each.session for each in self._held.values() if each.session.status == "idle"]
            if not idle:
                raise AppBusyError(f"{self._max_active} sessions are running")
            await self._evict(idle[0])

    async def evict_idle(self) -> tuple[str, ...]:
        """Evicts what has not been used for the time-out; returns the ids."""
        gone = list[str]()
        async with self._lock:
            for each in tuple(self._held.values()):
                due = 0 < self._idle_timeout <= self._clock() - each.used
                if due and each.session.status == "idle" and await self._evict(each.session):
                    gone.append(each.session.id)
        return tuple(gone)

    async def _evict(self, session: AppSession) -> bool:
        """Saves and closes; False if the session was used meanwhile, which keeps it.

        Raises: what saving raised (the session stays), or closing.
        """
        before = self._held[session.id].used, len(session.queued_messages), session.tick
        await self._persistence.settle(session.id)
        await self._persistence.save(session)
        held = self._held.get(session.id)
        if held is None or session.status == "closed":
            return True
        now = held.used, len(session.queued_messages), session.tick
        if now != before or session.status != "idle":
            return False
        await session.close()
        return True

    async def remove(self, id: str) -> None:
        """Closes the session, and removes what is stored of it."""
        async with self._lock:
            held = self._held.get(id)
            try:
                if held is not None:
                    await held.session.close()
            finally:
                await self._persistence.delete(id)

    async def close_all(self) -> None:
        """Saves and closes every session, also after a failure of one; raises the failures."""
        failures = list[Exception]()
        async with self._lock:
            for each in tuple(self._held.values()):
                for step in (self._save, AppSession.close):
                    try:
                        await step(each.session)
                    except Exception as error:  # noqa: BLE001 - raised below
                        failures.append(error)
        if failures:
            raise ExceptionGroup("sessions could not be saved or closed", failures)

    async def _save(self, session: AppSession) -> None:
        await self._persistence.settle(session.id)
        await self._persistence.save(session)

    def touched(self, id: str) -> None:
        """Makes it the most recently used one."""
        held = self._held.pop(id, None)
        if held is not None:
            held.used = self._clock()
            self._held[id] = held

    def ran(self, id: str) -> None:
        """Saves it in the background."""
        held = self._held.get(id)
        if held is not None:
            self._persistence.save_later(held.session)

    async def closed(self, id: str) -> None:
        """Forgets it, once it is saved."""
        await self._persistence.settle(id)
        self._held.pop(id, None)
