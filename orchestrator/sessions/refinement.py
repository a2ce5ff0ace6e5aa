"""Reissues a session that missed something, with a refined pack; shows packs and misses."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from orchestrator.ground.errors import ConflictError, NotFoundError
from orchestrator.ground.store.database import Database
from orchestrator.record.audit import query
from orchestrator.rules.access.break_glass import BreakGlass
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.policy.levels import clamped_limits
from orchestrator.sandbox.packs.firewall import READ
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.state import pack_rows, stored_sessions
from orchestrator.state.pack import Pack
from orchestrator.state.requests import NewSession
from orchestrator.state.session import Session
from orchestrator.state.stored_sessions import SessionRow
from paddock.audit.chain import Event
from paddock.contract.words import Rationale

_MOST_MISSES = 100


@dataclass(frozen=True, slots=True)
class Consumed:
    """A session's pack and the reads that it was denied, earliest first."""

    session: Session
    pack: Pack
    misses: list[Event]


class Refinement:
    """The packs of sessions, also of those that ended long ago."""

    def __init__(self, database: Database, workspaces: Workspaces, glass: BreakGlass) -> None:
        self._database = database
        self._workspaces = workspaces
        self._glass = glass

    async def show(self, principal: Principal, session_id: str) -> Consumed:
        """The latest session with that id that had a pack. Raises: NotFoundError."""
        session = await self._latest(principal, session_id)
        assert session.pack is not None  # noqa: S101 - it was asked for
        found = await query.events(self._database, session.key, operation=READ, decision="deny")
        return Consumed(session, session.pack, list(found)[:_MOST_MISSES])

    async def request(
        self,
        principal: Principal,
        session_id: str,
        pack: Pack,
        env: Mapping[str, str],
        secrets: Mapping[str, str],
    ) -> NewSession:
        """The request for a session like the one that missed something, with that pack.

        Values of variables are not kept after a session's end, so they are given again. Raises:
        NotFoundError, ConflictError if it ended otherwise.
        """
        old = await self._latest(principal, session_id)
        ended = old.termination
        if ended is None or ended.rationale_code is not Rationale.CONTEXT_MISS:
            raise ConflictError("only a session that ended by a CONTEXT_MISS can be refined")
        limits = old.budget.view(datetime.now(UTC)).limits
        return NewSession(
            id=old.id,
            permission_level=old.level.name,
            terms=replace(
                old.terms,
                env=dict(env),
                idle_action=None,
                policy_resolved_ref=None,
                episode_id=None,
            ),
            secrets=dict(secrets),
            budget={str(kind): amount for kind, amount in limits.items() if amount is not None},
            policy=old.policy,
            consume=pack,
        )

    async def _latest(self, principal: Principal, session_id: str) -> Session:
        owner = None if principal.role is Role.HANDLE else principal.sees_owner
        row = await self._database.read(
            lambda connection: stored_sessions.load_with_pack(
                connection, pack_rows.latest_key(connection, session_id, owner)
            )
        )
        session = None
        if row is not None:
            session = SessionRow(row, self._workspaces.root_dir, clamped_limits).session
        if session is None or not principal.may_see(session.key, session.owner):
            raise NotFoundError(f"no session {session_id[:128]} with a context pack")
        self._glass.check(principal, session.id, session.key, session.owner)
        return session
