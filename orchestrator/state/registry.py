"""Every known session: live ones, and recently ended ones."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from orchestrator.ground.errors import CapacityExhaustedError, ConflictError
from orchestrator.ground.events import time_text
from orchestrator.ground.limits import KeyUsage
from orchestrator.rules.policy.levels import SessionLimits
from orchestrator.state.counted.tally import Standing, Tally
from orchestrator.state.session import Session

# Ended sessions kept in memory; above this number, the oldest are forgotten early.
_MOST_ENDED = 10_000
# Sessions that have not ended, with or without a sandbox.
_MOST_LIVE = 10_000
_RETRY_SECONDS = 10


class Registry:
    """Sessions by id, key and handle. Live ids are unique, ignoring case."""

    def __init__(self, terminated_ttl: int) -> None:
        self._ttl = timedelta(seconds=terminated_ttl)
        self._live: dict[str, Session] = {}
        self._by_handle: dict[str, Session] = {}
        self._ended: dict[str, Session] = {}
        # All of these, by their keys.
        self._by_key: dict[str, Session] = {}
        self._reserved: dict[str, Session] = {}
        # Those that live, by their owners and keys.
        self._owned: dict[str, dict[str, Session]] = {}
        self._tally = Tally()
        # Whether sessions that other nodes may take over must stand still here right now.
        self.outlived: Callable[[], bool] = bool  # never

    def __len__(self) -> int:
        """The number of live sessions, including those being created."""
        return len(self._live) + len(self._reserved)

    @property
    def with_sandbox(self) -> int:
        """How many of them have a sandbox, or are about to get one."""
        return self._tally.with_sandbox

    @property
    def of_sandboxes(self) -> list[Session]:
        """Those sessions."""
        live = [each for each in self._live.values() if not each.suspended]
        return [*self._reserved.values(), *live]

    def reserve(self, session: Session) -> None:
        """Reserves the id of a session that is being created.

        Raises: ConflictError; CapacityExhaustedError if there are too many sessions.
        """
        if len(self) >= _MOST_LIVE:
            raise CapacityExhaustedError(
                f"there are {_MOST_LIVE} sessions: end some", retry_after=_RETRY_SECONDS
            )
        name = session.id.casefold()
        if name in self._live or name in self._reserved:
            raise ConflictError(f"a session with the id {session.id} exists", field="id")
        self._reserved[name] = self._by_key[session.key] = session
        self._tally.put(session, Standing.RESERVED)

    def unreserve(self, session: Session) -> None:
        """Releases the id that was reserved for the session."""
        _drop(self._reserved, session.id.casefold(), session)
        _drop(self._by_key, session.key, session)
        self._tally.remove(session)

    @contextmanager
    def changing(self, session: Session, limits: SessionLimits) -> Iterator[None]:
        """Counts those limits for the session as well, while it changes to them."""
        self._tally.change(session, limits)
        try:
            yield
        finally:
            self._tally.change(session, None)

    def usage(self, owner: str) -> KeyUsage:
        """The resources of the owner's sessions, including those being created."""
        return self._tally.held(owner)

    def add(self, session: Session) -> None:
        """Adds a session that exists from now on."""
        self.unreserve(session)
        session.outlived = lambda: self.outlived()
        self._live[session.id.casefold()] = self._by_key[session.key] = session
        self._owned.setdefault(session.owner, {})[session.key] = session
        self._tally.put(session, Standing.LIVE)
        self._by_handle[session.handle_sha256] = session

    def end(self, session: Session) -> None:
        """Moves a session that has ended; its handle becomes invalid.

        Another session with its id, live or ended later, is not affected.
        """
        _drop(self._live, session.id.casefold(), session)
        self._disown(session)
        self._tally.remove(session)
        _drop(self._by_handle, session.handle_sha256, session)
        other = self._ended.get(session.id)
        if other is None or _ended_at(other) <= _ended_at(session):
            self._forget(session.id)
            self._ended[session.id] = self._by_key[session.key] = session
            self._tally.put(session, Standing.ENDED)
        else:
            _drop(self._by_key, session.key, session)
        self._forget_old()

    def forget_ended(self, owner: str) -> None:
        """Forgets what is still in memory of the owner's ended sessions."""
        for session in [each for each in self._ended.values() if each.owner == owner]:
            self._forget(session.id)

    def rehandle(self, session: Session, handle_sha256: str) -> None:
        """Replaces a session's handle."""
        _drop(self._by_handle, session.handle_sha256, session)
        session.handle_sha256 = handle_sha256
        self._by_handle[handle_sha256] = session

    def get(self, session_id: str) -> Session | None:
        """The live session with exactly that id, else the latest ended one still in memory."""
        live = self._live.get(session_id.casefold())
        if live is not None and live.id == session_id:
            return live
        self._forget_old()
        return self._ended.get(session_id)

    def named(self, name: str) -> Session | None:
        """The live session with that id in any case, as in a host name."""
        return self._live.get(name.casefold())

    def by_handle(self, handle_sha256: str) -> Session | None:
        """The live session of that handle."""
        return self._by_handle.get(handle_sha256)

    def owner(self, session_key: str) -> str | None:
        """The owner of a known session, or of one being created, by its key."""
        session = self._by_key.get(session_key)
        return None if session is None else session.owner

    def by_key(self, session_key: str) -> Session | None:
        """The live or recently ended session with that key."""
        session = self._by_key.get(session_key)
        created = session is not None and session.id.casefold() not in self._reserved
        return session if created else None

    @property
    def ended_after(self) -> str:
        """The time before which ended sessions are no longer shown."""
        return time_text(datetime.now(UTC) - self._ttl)

    @property
    def live(self) -> list[Session]:
        """Every session that has not ended."""
        return list(self._live.values())

    @property
    def all(self) -> list[Session]:
        """Live and recently ended sessions."""
        self._forget_old()
        return [*self._live.values(), *self._ended.values()]

    @property
    def tally(self) -> Tally:
        """Counts over live and recently ended sessions."""
        self._forget_old()
        return self._tally

    @property
    def sandboxed(self) -> list[Session]:
        """Those that have not ended and have a sandbox."""
        return list(self._tally.sandboxed.values())

    def owned(self, owner: str) -> list[Session]:
        """Every session of that owner that has not ended."""
        return list(self._owned.get(owner, {}).values())

    def _disown(self, session: Session) -> None:
        owned = self._owned.get(session.owner, {})
        _drop(owned, session.key, session)
        if not owned:
            self._owned.pop(session.owner, None)

    def _forget_old(self) -> None:
        oldest = self.ended_after
        while self._ended:
            session_id, session = next(iter(self._ended.items()))
            if _ended_at(session) > oldest and len(self._ended) <= _MOST_ENDED:
                break
            self._forget(session_id)

    def _forget(self, session_id: str) -> None:
        """Forgets the ended session with that id, if there is one."""
        session = self._ended.pop(session_id, None)
        if session is not None:
            _drop(self._by_key, session.key, session)
            self._tally.remove(session)


def _drop(sessions: dict[str, Session], name: str, session: Session) -> None:
    """Removes the session where that name still refers to it."""
    if sessions.get(name) is session:
        del sessions[name]


def _ended_at(session: Session) -> str:
    return session.termination.terminated_at if session.termination else ""
