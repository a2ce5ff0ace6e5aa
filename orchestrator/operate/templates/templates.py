"""The operator's templates: their states, and the snapshots with which their sessions begin."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from orchestrator.ground.errors import (
    CapacityExhaustedError,
    ConflictError,
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.task_scope import TaskScope
from orchestrator.operate.templates.preparation import (
    PREPARER,
    CommandFailedError,
    Preparation,
    PreparationFailure,
    TemplateVersion,
)
from orchestrator.operate.templates.request import with_template
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.policy.levels import DEFAULT_LEVEL, Levels
from orchestrator.rules.templates.template import Template
from orchestrator.rules.templates.template_files import TemplateFiles
from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.named_snapshots.snapshot_rows import NamedSnapshot
from orchestrator.sandbox.sandboxes.level_images import LevelImages
from orchestrator.sandbox.sandboxes.listed_images import ListedImages
from orchestrator.sandbox.sandboxes.session_sandboxes import Sandboxes
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sessions.sessions import Sessions
from orchestrator.state.requests import NewSession

log = logging.getLogger(__name__)

_RETRY_SECONDS = 10
_PAGE = 500
# Errors of a preparation that are no fault of the request which has caused it.
_OF_OPERATOR = (ValidationError, PermissionDeniedError, NotFoundError)

State = Literal["unbuilt", "built", "stale", "building", "failed"]


@dataclass(frozen=True, slots=True)
class ShownTemplate:
    """A template as it is now; `version` is None if it can't be prepared, `failure` says why."""

    template: Template
    state: State
    version: TemplateVersion | None = None
    snapshot: NamedSnapshot | None = None
    failure: PreparationFailure | None = None


class Templates:
    """A template is prepared once, by a session that takes a snapshot.

    The snapshot's name has the digest of all that went in, so another file, image or level makes
    another one, and the old one is removed. One preparation at a time runs for each template.
    """

    def __init__(
        self,
        seconds: int,
        files: TemplateFiles,
        levels: Levels,
        images: ListedImages,
        level_images: LevelImages,
        sandboxes: Sandboxes,
        workspaces: Workspaces,
        sessions: Sessions,
        snapshots: NamedSnapshots,
        preparation: Preparation,
        recorder: Recorder,
    ) -> None:
        """`seconds` is how long a preparation may take, and how long a caller waits for it."""
        self._seconds = seconds
        self._files = files
        self._levels = levels
        self._images = images
        self._level_images = level_images
        self._sandboxes = sandboxes
        self._workspaces = workspaces
        self._sessions = sessions
        self._snapshots = snapshots
        self._preparation = preparation
        self._recorder = recorder
        self._running: dict[str, asyncio.Task[NamedSnapshot]] = {}
        self._failures: dict[str, PreparationFailure] = {}
        self._tasks = TaskScope("the preparation of a template")
        self._subscribers: list[Callable[[], None]] = []

    def on_change(self, subscriber: Callable[[], None]) -> None:
        """Subscribes to the ends of preparations."""
        self._subscribers.append(subscriber)

    # Showing.

    async def all(self) -> list[ShownTemplate]:
        """All templates by name. Raises: EngineUnavailableError."""
        kept = await self._kept()
        return [await self._shown(each, kept) for _, each in sorted(self._files.items())]

    async def show(self, name: str) -> ShownTemplate:
        """One template. Raises: NotFoundError, EngineUnavailableError."""
        return await self._shown(self._files.found(name), await self._kept())

    async def _shown(self, template: Template, kept: list[NamedSnapshot]) -> ShownTemplate:
        own = [each for each in kept if _template_of(each) == template.name]
        latest = own[-1] if own else None
        if template.name in self._running:
            return ShownTemplate(template, "building", snapshot=latest)
        try:
            version = await self._version(template)
        except ValidationError as error:
            problem = PreparationFailure("", error.detail, now())
            return ShownTemplate(template, "failed", None, latest, problem)
        for snapshot in own:
            if snapshot.name == version.snapshot:
                return ShownTemplate(template, "built", version, snapshot)
        if (failed := self._failure(version)) is not None:
            return ShownTemplate(template, "failed", version, latest, failed)
        return ShownTemplate(template, "unbuilt" if latest is None else "stale", version, latest)

    # Preparing.

    async def build(self, principal: Principal, name: str) -> ShownTemplate:
        """Prepares the template unless it is prepared, also after a failure.

        Raises: NotFoundError; the errors of `prepared`.
        """
        template = self._files.found(name)
        await self._ready(principal, template, again=True)
        return await self._shown(template, await self._kept())

    async def prepared(self, principal: Principal, name: str, asked: NewSession) -> NewSession:
        """The request for a session that begins with the template's files, which are there now.

        Raises: ValidationError, PermissionDeniedError for what the key may not have, before
        anything is prepared; CommandFailedError; CapacityExhaustedError if it takes too long; the
        errors of `Preparation.run`.
        """
        if asked.from_snapshot is not None:
            raise ValidationError(
                "one of template and from_snapshot can be given, not both", field="template"
            )
        template = self._files.asked(name)
        bounds = principal.bounds
        wanted = asked.permission_level or template.permission_level
        level = self._levels.named(wanted or bounds.default_level(self._levels))
        bounds.check_level(level, self._levels)
        request = with_template(template, asked, level)
        self._images.choose(request.terms.image or None, bounds.images, level)
        snapshot = await self._ready(principal, template)
        return replace(request, files=self._snapshots.files_of(snapshot))

    async def _ready(
        self, principal: Principal, template: Template, *, again: bool = False
    ) -> NamedSnapshot:
        """The snapshot, after its preparation; `again`: also if that has failed before."""
        try:
            async with asyncio.timeout(self._seconds):
                while True:
                    version = await self._version(template)
                    found = await self._cached(version)
                    if found is not None:
                        return found
                    running = self._running.get(template.name)
                    if running is None:
                        failure = None if again else self._failure(version)
                        # What else has failed may succeed now.
                        if failure is not None and failure.command is not None:
                            raise _failed(version, failure)
                        running = self._begin(principal, version)
                        return await asyncio.shield(running)
                    # It may prepare an earlier version of the file.
                    await asyncio.wait([running])
                    again = False
        except TimeoutError:
            raise CapacityExhaustedError(
                f"the template {template.name} is still being prepared: try again later",
                retry_after=_RETRY_SECONDS,
            ) from None

    def _begin(self, principal: Principal, version: TemplateVersion) -> asyncio.Task[NamedSnapshot]:
        name = version.template.name
        task = self._tasks.spawn(self._prepare(principal, version))
        self._running[name] = task

        def ended(_: object) -> None:
            self._running.pop(name, None)
            for subscriber in self._subscribers:
                subscriber()

        task.add_done_callback(ended)
        return task

    async def _prepare(self, principal: Principal, version: TemplateVersion) -> NamedSnapshot:
        found = await self._cached(version)  # another one may just have ended
        if found is not None:
            return found
        args = {"template": version.template.name, "digest": version.digest}
        draft = EventDraft("template.start", principal.name, decision="allow", args=args)
        await self._recorder.record_system(draft)
        FaultPoint.TEMPLATE_RECORDED.reached()
        ended = EventDraft("template.end", PREPARER.name, args=args)
        self._failures.pop(version.template.name, None)
        try:
            snapshot = await self._prepared(version)
        except PaddockError as error:
            await self._recorder.record_system(ended._replace(error=error.detail))
            raise
        await self._recorder.record_system(ended._replace(result={"snapshot": snapshot.id}))
        await self._remove_others(version)
        return snapshot

    async def _prepared(self, version: TemplateVersion) -> NamedSnapshot:
        name = version.template.name
        try:
            async with asyncio.timeout(self._seconds):
                return await self._preparation.run(version)
        except CommandFailedError as error:
            self._failures[name] = error.failure
            raise
        except PaddockError as error:
            self._failures[name] = PreparationFailure(version.digest, error.detail, now())
            if isinstance(error, _OF_OPERATOR):
                raise _failed(version, self._failures[name]) from None
            raise
        except TimeoutError:
            detail = f"its preparation takes longer than {self._seconds} s"
            self._failures[name] = PreparationFailure(version.digest, detail, now())
            raise CapacityExhaustedError(
                f"the template {name} could not be prepared: {detail}", retry_after=_RETRY_SECONDS
            ) from None

    async def _version(self, template: Template) -> TemplateVersion:
        """Raises: ValidationError if it can't be prepared; EngineUnavailableError."""
        level = self._levels.named(template.permission_level or DEFAULT_LEVEL)
        permitted = self._images.choose(template.image, None, level)
        image, _ = await self._level_images.chosen(level.name, permitted)
        image_id = await self._sandboxes.look_up(image)
        digest = template.digest(image_id, level.sha256)
        return TemplateVersion(template, level, image, image_id, digest)

    # The cache.

    async def _kept(self) -> list[NamedSnapshot]:
        """All snapshots of templates that are complete, the oldest first."""
        owner, found = PREPARER.name, list[NamedSnapshot]()
        after = ("", "")
        while page := await self._snapshots.page(owner, None, after, _PAGE):
            found += [each.snapshot for each in page if each.snapshot.ready]
            after = (owner, page[-1].snapshot.name or "")
        return sorted(found, key=lambda each: each.created_at)

    async def _cached(self, version: TemplateVersion) -> NamedSnapshot | None:
        kept = await self._kept()
        return next((each for each in kept if each.name == version.snapshot), None)

    def _failure(self, version: TemplateVersion) -> PreparationFailure | None:
        """How the last preparation of this version has failed; None if it has not."""
        failure = self._failures.get(version.template.name)
        return failure if failure is not None and failure.digest == version.digest else None

    async def _remove_others(self, version: TemplateVersion) -> None:
        """Removes snapshots of earlier versions, and of templates that are gone."""
        for each in await self._kept():
            name = _template_of(each)
            outdated = name == version.template.name or name not in self._files
            if outdated and each.name != version.snapshot:
                try:
                    await self._snapshots.remove(PREPARER, PREPARER.name, each.id)
                except PaddockError as error:
                    log.warning("the snapshot %s of a template stays: %s", each.id, error.detail)

    # Start and end.

    async def recover(self) -> None:
        """Ends what an earlier run was preparing, and removes its workspaces.

        Raises: the errors of `Sessions.close` and `Workspaces.purge_of`.
        """
        for session in self._sessions.registry.live:
            if session.owner == PREPARER.name:
                await self._sessions.close(PREPARER, session, purge=True)
        await self._workspaces.purge_of(PREPARER.name)

    async def close(self) -> None:
        """Ends preparations, and their sessions."""
        await self._tasks.close()


def _template_of(snapshot: NamedSnapshot) -> str:
    """The template of which the snapshot's name begins."""
    return (snapshot.name or "").rpartition("-")[0]


def _failed(version: TemplateVersion, failure: PreparationFailure) -> PaddockError:
    return ConflictError(
        f"the template {version.template.name} could not be prepared: {failure.error}; "
        f"`paddock templates build {version.template.name}` tries again"
    )
