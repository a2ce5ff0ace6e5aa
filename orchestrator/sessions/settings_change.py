"""Changes a session's settings: who may, and what it costs; `LevelChange` changes the level."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext

from orchestrator.ground.errors import ConflictError, PermissionDeniedError, ValidationError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.policy.levels import Level, Levels, clamped_limits
from orchestrator.sandbox.sandboxes.listed_images import ListedImages
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sessions.level_change import LevelChange
from orchestrator.sessions.shares import Shares
from orchestrator.state.child_bounds import check_level, covers
from orchestrator.state.session import Session


class SettingsChange:
    """Changes settings within the bounds of the caller's key.

    A change that has begun continues in `tasks` if its caller is cancelled.
    """

    def __init__(
        self,
        levels: Levels,
        images: ListedImages,
        recorder: Recorder,
        shares: Shares,
        workspaces: Workspaces,
        level_change: LevelChange,
        tasks: TaskScope,
        end: Callable[[Session, str], Awaitable[None]],
    ) -> None:
        """`end` aborts a child for that reason."""
        self._end = end
        self._levels = levels
        self._images = images
        self._recorder = recorder
        self._shares = shares
        self._workspaces = workspaces
        self._level_change = level_change
        self._tasks = tasks

    async def run(
        self,
        principal: Principal,
        session: Session,
        permission_level: str | None,
        workspace: Mapping[str, str],
    ) -> None:
        """Sets the permission level; `workspace` is what the client takes for the workspace.

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

        A child that is created meanwhile is there afterwards, or finds the new level.
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
            with self._shares.changing(principal, session, limits):
                if not shares and size > session.limits.workspace_bytes:
                    await self._workspaces.reserve(workspace, size, self._shares.quota(principal))
                yield

        try:
            await self._level_change.run(session, principal, level, limits, admitted())
        finally:
            # A suspended one is resized when it is restored; one that is closed, at the next try.
            if session.sandbox is not None and not shares:
                await self._workspaces.resized(workspace, session.limits.workspace_bytes)


def _check_parent(session: Session, level: Level) -> None:
    """Raises: PermissionDeniedError for a child above its parent."""
    parent = session.family.parent
    if parent is not None:
        check_level(parent.level, level)
