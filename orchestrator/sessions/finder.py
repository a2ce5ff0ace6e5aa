"""Finds sessions: live ones, recently ended ones, and the records of all that were."""

from collections.abc import Callable, Sequence
from functools import partial

from orchestrator.ground.errors import NotFoundError
from orchestrator.ground.store.database import Database
from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.policy.levels import clamped_limits
from orchestrator.sessions.in_cluster.session_places import SessionPlaces
from orchestrator.state import session_pages, stored_sessions
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session
from orchestrator.state.session_pages import Position, WantedSessions
from orchestrator.state.stored_sessions import SessionRow

# For one page: they examine as many rows as there can be live sessions.
_MOST_LOOKS = 10


class Finder:
    """Finds sessions for those who may see them."""

    def __init__(
        self,
        registry: Registry,
        database: Database,
        root_dir: Callable[[str], str],
        places: SessionPlaces,
        arrivals: Callable[[], Sequence[Session]],
        glass: BreakGlass,
    ) -> None:
        """`root_dir` gives a workspace's directory by its id.

        `arrivals` are sessions that come from other nodes and are not active yet.
        """
        self._glass = glass
        self._arrivals = arrivals
        self._registry = registry
        self._database = database
        self._root_dir = root_dir
        self._places = places

    def find(self, principal: Principal, session_id: str) -> Session:
        """A live or recently ended session whose content the caller may touch.

        Raises: PermissionDeniedError if that needs break-glass access; the errors of `outside`.
        """
        session = self.outside(principal, session_id)
        self._glass.check(principal, session.id, session.key, session.owner)
        return session

    def outside(self, principal: Principal, session_id: str) -> Session:
        """A live or recently ended session, of which the caller touches no content.

        Raises: NotFoundError, also for others' sessions; NodeUnavailableError while it moves from
        this node or to it, SessionTerminatedError if it has moved away.
        """
        session = self._arriving(session_id) or self._registry.get(session_id)
        if session is None or not principal.may_see(session.key, session.owner):
            raise NotFoundError(f"no session {session_id[:128]}")
        _check_here(session)
        return session

    def by_handle(self, handle_sha256: str) -> Session | None:
        """The live session of a handle. Raises: NodeUnavailableError while it arrives here."""
        session = self._registry.by_handle(handle_sha256)
        if session is None:
            for each in self._arrivals():
                if each.handle_sha256 == handle_sha256:
                    each.check_settled()
        return session

    async def page(
        self, wanted: WantedSessions, after: Position | None, most: int
    ) -> tuple[Sequence[Session], Position | None]:
        """The wanted sessions that follow that position, up to `most`; and where to go on, if so.

        The database finds and sorts them, others are served between two looks. There may be fewer,
        or none, although there are more: what few sessions have is searched for in parts.
        """
        keys: list[str] = []
        for _ in range(_MOST_LOOKS):
            left = most - len(keys)
            search = partial(session_pages.find_keys, wanted=wanted, after=after, most=left)
            found = await self._database.browse(search)
            keys += found.keys
            after = found.next
            if after is None or len(keys) == most:
                break
        # The end of one may not be on record yet.
        return [each for each in await self._sessions(keys) if wanted.fits(each.status)], after

    async def _sessions(self, keys: Sequence[str]) -> Sequence[Session]:
        """The sessions with these keys: those in memory, and others from their records."""
        known = {key: session for key in keys if (session := self._registry.by_key(key))}
        others = [key for key in keys if key not in known]
        if others:
            load = partial(stored_sessions.load_keys, keys=others)
            for row in await self._database.browse(load):
                found = SessionRow(row, self._root_dir, clamped_limits).session
                self._places.name(found)
                known[found.key] = found
        return [known[key] for key in keys if key in known]

    async def record_key(
        self, principal: Principal, session_id: str, incarnation: int | None = None
    ) -> str:
        """The key of the record of a session with that id, by default the latest incarnation.

        It may have ended long ago. Raises: NotFoundError; PermissionDeniedError if what it contains
        needs break-glass access.
        """
        key = await self.known_key(principal, session_id, incarnation)
        if self._glass.required:
            owner = await self._database.read(partial(stored_sessions.owner_of, key=key))
            self._glass.check(principal, session_id, key, owner or "")
        return key

    async def known_key(
        self, principal: Principal, session_id: str, incarnation: int | None = None
    ) -> str:
        """The same key, for a caller who learns no content by it. Raises: NotFoundError."""
        session = self._registry.get(session_id)
        wanted = session is not None and incarnation in (None, session.incarnation)
        if session is not None and wanted and principal.may_see(session.key, session.owner):
            return session.key
        if principal.role is not Role.HANDLE:
            owner = principal.sees_owner
            key = await self._database.read(
                lambda connection: stored_sessions.find_key(
                    connection, session_id, owner, incarnation
                )
            )
            if key is not None:
                return key
        number = "" if incarnation is None else f" with the incarnation {incarnation}"
        raise NotFoundError(f"no session {session_id[:128]}{number}")

    def existing(self, principal: Principal, session_id: str) -> Session | None:
        """The caller's live session with that id. Raises: NodeUnavailableError while it moves."""
        session = self._arriving(session_id) or self._registry.get(session_id)
        if session is None or not session.live:
            return None
        if not principal.may_see(session.key, session.owner):
            return None
        session.check_settled()
        return session

    def _arriving(self, session_id: str) -> Session | None:
        return next((each for each in self._arrivals() if each.id == session_id), None)

    def by_container(self, container_id: str) -> Session | None:
        """The live session whose sandbox runs in that container."""
        for session in self._registry.sandboxed:
            if session.sandbox is not None and session.sandbox.container_id == container_id:
                return session
        return None


def _check_here(session: Session) -> None:
    """Raises: NodeUnavailableError while it moves, SessionTerminatedError if it has moved away."""
    session.check_settled()
    if session.moved_away:
        session.check_live()
