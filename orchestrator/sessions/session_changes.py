"""Changes of live sessions that clients ask for: another level, episode or handle."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orchestrator.ground.errors import ConflictError, PermissionDeniedError, ValidationError
from orchestrator.ground.events import EventDraft, now, time_text
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.audit.stop_records import Write
from orchestrator.rules.access.keys import Principal, digest, new_handle
from orchestrator.rules.policy.levels import Level, Levels, clamped_limits
from orchestrator.sandbox.sandboxes.listed_images import ListedImages
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sessions.deadlines import (
    Deadline,
    Deadlines,
    changed,
    check_timeouts,
    deadlines,
    due,
)
from orchestrator.sessions.in_cluster.session_growth import SessionGrowth
from orchestrator.sessions.level_change import LevelChange
from orchestrator.sessions.shares import Shares
from orchestrator.settings.settings import Settings
from orchestrator.state import session_rows
from orchestrator.state.child_bounds import check_level, covers
from orchestrator.state.registry import Registry
from orchestrator.state.requests import NewTimeouts
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import check_not_stored
from orchestrator.state.terms import Terms


class SessionChanges:
    """Changes sessions within the bounds of the caller's key.

    A change of the level that has begun continues in `tasks` if its caller is cancelled.
    """

    def __init__(
        self,
        settings: Settings,
        levels: Levels,
        images: ListedImages,
        recorder: Recorder,
        registry: Registry,
        shares: Shares,
        workspaces: Workspaces,
        usage: SessionGrowth,
        level_change: LevelChange,
        tasks: TaskScope,
        end: Callable[[Session, str], Awaitable[None]],
        deadlines: Deadlines,
        expire: Callable[[Session, Write], Awaitable[None]],
    ) -> None:
        """`end` aborts a child for that reason; `expire` ends what is due."""
        self._settings = settings
        self._end = end
        self._deadlines = deadlines
        self._expire = expire
        self._levels = levels
        self._images = images
        self._recorder = recorder
        self._registry = registry
        self._shares = shares
        self._workspaces = workspaces
        self._usage = usage
        self._level_change = level_change
        self._tasks = tasks

    async def set_level(
        self,
        principal: Principal,
        session: Session,
        permission_level: str | None,
        workspace: Mapping[str, str],
    ) -> None:
        """Sets the permission level; `workspace` is what the client expects of it.

        Raises: ValidationError for a level that does not permit the session's image, and for
        another workspace than there is, which is recorded;
        PermissionDeniedError above the key's `max_level` or the parent's level;
        SessionTerminatedError, InvalidTransitionError while paused; RateLimitedError above the
        key's quota;
        SandboxUnavailableError if the new sandbox does not start, AuditUnavailableError if a lower
        level can't be recorded. In these two cases nothing runs, and the session takes no work
        until its level is set again.
        """
        session.check_live()
        session.check_not_fenced()
        await self._check_workspace(principal, session, workspace)
        if permission_level is None:
            return
        level = self._levels.named(permission_level)
        if session.pack is not None:
            level = level.offline()
        if self._level_change.needed(session, level):
            self._images.check_level(session.terms.image, level)
        slot: AbstractContextManager[None] = nullcontext()
        # Lowering a session's level waits for nothing and needs no permission.
        lowers = self._level_change.lowers(session, level)
        if not lowers:
            self._recorder.check_room(session)
            await self._check_bounds(principal, session, level)
            if self._level_change.needed(session, level):
                slot = await self._shares.slot(principal)
        await self._tasks.shield(self._change(principal, session, level, slot, lowers))

    async def _change(
        self,
        principal: Principal,
        session: Session,
        level: Level,
        slot: AbstractContextManager[None],
        lowers: bool,
    ) -> None:
        with slot:
            async with self._level_change.held(session, level):
                session.check_live()
                session.check_not_fenced()
                if self._level_change.needed(session, level):
                    _check_parent(session, level)
                    if lowers and not self._level_change.lowers(session, level):
                        raise ConflictError("the permission level was lowered meanwhile: try again")
                    await self._end_children(session, level)
                    await self._change_level(principal, session, level)
                    await self._end_children(session, level)
                else:
                    args = {"permission_level": session.level.name}
                    await self._recorder.record(
                        session, EventDraft("session.settings", actor=principal.name, args=args)
                    )

    async def _end_children(self, session: Session, level: Level) -> None:
        """Ends children that the level does not cover, and those that use its workspace.

        Called before and after the change, because a child may be created meanwhile.
        """
        above = [
            child
            for child in session.family.children.values()
            if child.family.shares or not covers(level, child.level)
        ]
        error = f"the level of its parent is {level.name} now"
        await asyncio.gather(*(self._end(child, error) for child in above))

    async def _check_workspace(
        self, principal: Principal, session: Session, wishes: Mapping[str, str]
    ) -> None:
        """Raises: ValidationError if the session's workspace is another."""
        own = {"mode": "session", "root_dir": session.root_dir}
        for name, wish in wishes.items():
            if wish == own.get(name):
                continue
            field = f"settings.workspace.{name}"
            error = f"{field} can't be changed: the control plane chooses the workspace"
            await self._recorder.refuse(
                session,
                EventDraft(
                    "session.settings",
                    actor=principal.name,
                    args={"workspace": dict(wishes)},
                    error=error,
                ),
            )
            raise ValidationError(error, field=field)

    async def _check_bounds(self, principal: Principal, session: Session, level: Level) -> None:
        """Raises PermissionDeniedError for a level above that of the caller's key or the parent."""
        try:
            principal.bounds.check_level(level, self._levels)
            _check_parent(session, level)
        except PermissionDeniedError as error:
            await self._recorder.refuse(
                session,
                EventDraft(
                    "session.settings",
                    actor=principal.name,
                    rule=error.fields["rule"],
                    args={"from": session.level.name, "to": level.name},
                    error=error.detail,
                ),
            )
            raise

    async def _change_level(self, principal: Principal, session: Session, level: Level) -> None:
        limits = clamped_limits(level, session.terms.limits)
        workspace, size = session.workspace, limits.workspace_bytes
        shares = session.family.shares  # its workspace keeps its size then

        @asynccontextmanager
        async def admitted() -> AsyncGenerator[None]:
            """Checks that the key's quota has room for those limits."""
            quota = self._shares.quota(principal)
            with self._shares.changing(principal, session, limits):
                await self._usage.grow(session, limits, quota)
                if not shares and size > session.limits.workspace_bytes:
                    await self._workspaces.reserve(workspace, size, quota)
                yield

        try:
            await self._level_change.run(session, principal, level, limits, admitted())
        finally:
            # A suspended one is resized when it is restored; one that is closed, at the next try.
            if session.sandbox is not None and not shares:
                await self._workspaces.resized(workspace, session.limits.workspace_bytes)
            await self._usage.settle(session)

    def check_timeouts(self, principal: Principal, session: Session, wanted: NewTimeouts) -> None:
        """Raises: ValidationError for a time-out above the operator's or the caller's key's;
        the errors of its end.
        """
        session.check_live()
        bounds = principal.bounds
        asked = changed(session, wanted._replace(keep_alive=None), datetime.now(UTC))
        check_timeouts(self._settings, bounds, asked, session.terms, "settings.")
        kept = changed(session, wanted, datetime.now(UTC))
        if kept != asked:
            try:
                check_timeouts(self._settings, bounds, kept, session.terms)
            except ValidationError as error:
                field = "settings.keep_alive"
                raise ValidationError(f"{field}: {error.detail}", field=field) from None

    async def set_timeouts(
        self, principal: Principal, session: Session, wanted: NewTimeouts
    ) -> None:
        """Changes the time-outs. What is due by the new ones ends at once, and is recorded after.

        Raises: the errors of `check_timeouts` and `Recorder.check_room`, AuditUnavailableError:
        then nothing is changed, unless it has ended.
        """
        self.check_timeouts(principal, session, wanted)
        before, began = session.terms, datetime.now(UTC)
        terms = changed(session, wanted, began)
        if terms == before and wanted.keep_alive is None:
            return
        draft = EventDraft(
            "session.settings",
            actor=principal.name,
            args={"idle_timeout": terms.idle_timeout, "wall_timeout": terms.wall_timeout},
        )
        effect = session_rows.with_timeouts(session, terms)
        if due(session, began, terms) is not None:
            stop = draft._replace(time=now(), stop=True)
            session.terms = terms
            await self._expire(session, lambda: self._recorder.record(session, stop, effect))
            if not session.live:
                return
            # It is suspended now, or in use again.
            session.terms = _with_times_of(session.terms, before)
        self._recorder.check_room(session)
        async with session.lock:
            session.check_live()
            told = draft._replace(result=_moments(session, terms))
            await self._recorder.record(session, told, effect)
            session.terms = _with_times_of(session.terms, terms)
        self._deadlines.watch(session)

    async def set_episode(
        self, principal: Principal, session: Session, episode_id: str | None
    ) -> None:
        """Names the episode of the session's work; None: it has none.

        Raises: SessionTerminatedError, BudgetExceededError; the errors of `Recorder.check_room`;
        ConflictError while its secrets are unknown, ValidationError if it has one in it.
        """
        session.check_live()
        self._recorder.check_room(session)
        session.secrets.check_known()
        named = {"episode_id": episode_id}
        check_not_stored(named, await self._recorder.cut(session, named))
        async with session.lock:
            session.check_live()
            episodes = session.episodes + (episode_id not in (None, session.terms.episode_id))
            await self._recorder.record(
                session,
                EventDraft("session.episode", actor=principal.name, args=named),
                effect=session_rows.with_episode(session, episode_id, episodes),
            )
            session.terms = replace(session.terms, episode_id=episode_id)
            session.episodes = episodes

    async def rotate_handle(self, principal: Principal, session: Session) -> str:
        """Creates a new handle; the old one is invalid from now on.

        Raises: the errors of `Recorder.check_room`, AuditUnavailableError.
        """
        session.check_live()
        self._recorder.check_room(session)
        handle = new_handle()
        async with session.lock:
            session.check_live()
            await self._recorder.record(
                session,
                EventDraft("session.settings", actor=principal.name, args={"handle": "rotated"}),
                effect=session_rows.updating(session, handle_sha256=digest(handle)),
            )
            self._registry.rehandle(session, digest(handle))
        return handle


def _with_times_of(terms: Terms, other: Terms) -> Terms:
    """The terms, which may have changed meanwhile, with the time-outs of the others."""
    return replace(terms, idle_timeout=other.idle_timeout, wall_timeout=other.wall_timeout)


def _moments(session: Session, terms: Terms) -> dict[str, str]:
    """When the session ends by these terms, for the record of the change, which is an activity."""
    found = {**deadlines(session, terms)}
    if Deadline.IDLE in found:
        found[Deadline.IDLE] = datetime.now(UTC) + timedelta(seconds=terms.idle_timeout)
    return {f"{name}_at": time_text(moment) for name, moment in found.items()}


def _check_parent(session: Session, level: Level) -> None:
    """Raises: PermissionDeniedError for a child above its parent."""
    parent = session.family.parent
    if parent is not None:
        check_level(parent.level, level)
