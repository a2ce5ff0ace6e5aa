"""Finds sessions: live ones, recently ended ones, and the records of all that were."""

from collections.abc import Callable, Sequence

from orchestrator.ground.errors import NotFoundError
from orchestrator.ground.store.database import Database
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.policy.levels import clamped_limits
from orchestrator.state import stored_sessions
from orchestrator.state.registry import Registry
from orchestrator.state.session import Session
from orchestrator.state.stored_sessions import SessionRow

# Names and texts that sessions must have, all of them.
Pairs = Sequence[tuple[str, str]]


class Finder:
    """Finds sessions for those who may see them."""

    def __init__(
        self, registry: Registry, database: Database, root_dir: Callable[[str], str]
    ) -> None:
        """`root_dir` gives a workspace's directory by its id."""
        self._registry = registry
        self._database = database
        self._root_dir = root_dir

    def find(self, principal: Principal, session_id: str) -> Session:
        """A live or recently ended session. Raises NotFoundError for others' sessions, too."""
        session = self._registry.get(session_id)
        if session is None or not principal.may_see(session.key, session.owner):
            raise NotFoundError(f"no session {session_id[:128]}")
        return session

    def by_handle(self, handle_sha256: str) -> Session | None:
        """The live session of a handle."""
        return self._registry.by_handle(handle_sha256)

    def list(
        self,
        principal: Principal,
        *,
        status: str | None = None,
        label: tuple[str, str] | None = None,
        metadata: Pairs = (),
        work_id: str | None = None,
        parent_key: str | None = None,
    ) -> list[Session]:
        """The sessions that the principal may see, newest first.

        They are the children of the session `parent_key`, or without it those that have no parent.
        """
        found = [
            session
            for session in self._registry.all
            if principal.may_see(session.key, session.owner)
            and (status is None or session.status == status)
            and (label is None or session.terms.labels.get(label[0]) == label[1])
            and all(session.terms.metadata.get(name) == text for name, text in metadata)
            and work_id in (None, session.terms.work_id)
            and session.family.parent_key == parent_key
        ]
        return sorted(found, key=lambda session: session.created_at, reverse=True)

    async def list_ended(
        self,
        principal: Principal,
        *,
        status: str | None,
        label: tuple[str, str] | None,
        metadata: Pairs,
        work_id: str | None,
        parent_key: str | None,
        before: tuple[str, str] | None,
        limit: int,
    ) -> Sequence[Session]:
        """The principal's ended sessions, however old, newest first; `parent_key` as in `list`.

        `status` None: with any status; `before`: created before that (created_at, key).
        """
        wanted = stored_sessions.EndedPage(
            principal.sees_owner, status, label, before, limit, work_id, parent_key, metadata
        )
        rows = await self._database.browse(lambda conn: stored_sessions.load_ended(conn, wanted))
        return [SessionRow(row, self._root_dir, clamped_limits).session for row in rows]

    async def record_key(
        self, principal: Principal, session_id: str, incarnation: int | None = None
    ) -> str:
        """The key of the record of a session with that id, by default the latest incarnation.

        It may have ended long ago. Raises: NotFoundError.
        """
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
        """The caller's live session with that id."""
        session = self._registry.get(session_id)
        found = (
            session is not None and session.live and principal.may_see(session.key, session.owner)
        )
        return session if found else None

    def by_container(self, container_id: str) -> Session | None:
        """The live session whose sandbox runs in that container."""
        for session in self._registry.live:
            if session.sandbox is not None and session.sandbox.container_id == container_id:
                return session
        return None
