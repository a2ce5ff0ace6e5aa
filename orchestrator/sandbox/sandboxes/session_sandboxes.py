"""Starts, adopts and releases the sandboxes of sessions."""

import asyncio
import logging

from orchestrator.ground.errors import (
    EngineUnavailableError,
    PaddockError,
    SandboxUnavailableError,
    ValidationError,
)
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import Container
from orchestrator.host.engine.runtimes import Runtimes
from orchestrator.host.link.vouching import Vouching
from orchestrator.host.node.base import Node
from orchestrator.host.workspace.mounts import MountError
from orchestrator.record.audit.ledger import Ledger
from orchestrator.rules.policy.levels import Level, SessionLimits
from orchestrator.sandbox.images.checked_images import CheckedImages
from orchestrator.sandbox.images.mounted_agents import MountedAgents
from orchestrator.sandbox.sandboxes.mounted_agent_part import MountedAgentPart
from orchestrator.sandbox.sandboxes.open_network import OpenNetworkUse
from orchestrator.sandbox.sandboxes.parts import Part
from orchestrator.sandbox.sandboxes.starter import ImageChangedError, Starter
from orchestrator.sandbox.sandboxes.subscribers import Subscribers
from orchestrator.sandbox.sandboxes.suitability import Suitability
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sandbox.sandboxes.workspace_paths import check_place
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sandbox.volumes.volume_paths import check_uses
from orchestrator.sandbox.volumes.volumes import Volumes
from orchestrator.settings.operator_mounts import OperatorMount, chosen
from orchestrator.settings.settings import Settings
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from orchestrator.state.shapes import Shape, can_wait, has_usual_limits
from sandbox_agent.decide.protocol import WORKSPACE_DIR

log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 6.0


class Sandboxes:
    """All sandboxes. A sandbox that could not start leaves nothing behind."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        runtimes: Runtimes,
        ledger: Ledger,
        workspaces: Workspaces,
        volumes: Volumes,
        subscribers: Subscribers,
        ways: tuple[Part, ...],
        metrics: Metrics,
        vouching: Vouching,
    ) -> None:
        self.vouching = vouching
        self._settings = settings
        self._subscribers = subscribers
        self._workspaces = workspaces
        self._releases = TaskScope("the release of a sandbox")
        self._looks = TaskScope("a look at an image")
        self._checked = CheckedImages(settings.state_dir)
        self.agents = MountedAgents(node.engine, settings.state_dir, settings.image)
        self._suitability = Suitability(node.engine, node, self._checked, runtimes)
        self.open_network = OpenNetworkUse(node.engine, settings.image)
        self._starter = Starter(
            *(settings, node, ledger, workspaces, volumes, subscribers, self._suitability),
            *(ways, self._releases, MountedAgentPart(node.engine, self.agents, self._checked)),
            *(self.open_network, vouching),
        )
        self.pool = WarmPool(
            settings, self._starter.start_ahead, self._suitability.image_id, metrics
        )

    def add(self, way: Part) -> None:
        """Gives sandboxes another part, opened after the other ways. Call it before the first."""
        self._starter.add(way)

    async def check_level(self, session: Session, level: Level) -> None:
        """Raises UnmetError if this host can't enforce the level, before anything begins.

        Raises: ValidationError if the level can't have the session's volumes or image, or its
        workspace where it is.
        """
        self._suitability.check_image(session.terms.image, level)
        check_place(session.workspace_path, self._taken(session, level))
        if session.terms.volumes:
            self._check_volumes(session, level)
        await self._suitability.check_level(level, packed=session.pack is not None)

    def _check_volumes(self, session: Session, level: Level) -> None:
        """Raises: ValidationError."""
        taken = [session.workspace_path, *self._taken(session, level)]
        check_uses(session.terms.volumes, taken)
        if level.rates.disk:
            raise ValidationError(
                f"level {level.name} limits the rate of the workspace's disk, and no volume's: "
                "its sessions have none",
                field="volumes",
            )

    def look_up(self, image: str) -> asyncio.Task[str]:
        """Begins to ask the engine for the id that the image's name has.

        A session's creation does so as soon as possible, because `start` needs the answer.
        """
        return self._looks.spawn(self._suitability.image_id(image))

    async def start(
        self,
        session: Session,
        level: Level,
        limits: SessionLimits,
        looking: asyncio.Task[str] | None = None,
        files: str | None = None,
    ) -> Sandbox:
        """Starts a sandbox for the session at that level and waits for its agent's hello.

        `looking` is what `look_up` returned for the session's image, if it was called before.
        `files` is the id of the snapshot as which it begins, if it does. No other sandbox may use
        the session's workspace, because its size is set here. Raises: EngineUnavailableError,
        SandboxUnavailableError, ValidationError, and the errors of `Workspaces.prepare`.
        """
        await self.check_level(session, level)
        mounts = self._mounts(session, level)
        looking = looking or self.look_up(session.terms.image)
        # The agent of a session with a pack takes longer to be configured.
        bare = not mounts and not session.terms.volumes and session.pack is None
        # Those that wait have /workspace as the place of the workspace already.
        usual = can_wait(level) and session.workspace_path == WORKSPACE_DIR
        if self.pool.runs and bare and usual:
            warm = await self._taken_over(session, level, limits, looking, files)
            if warm is not None:
                return warm
        # The image may have been removed or replaced since the last session had it.
        image_id = await asyncio.shield(looking)
        await self.pool.make_room()
        try:
            parts = await self._starter.start(session, level, limits, mounts, image_id)
        except PaddockError as error:
            self._suitability.note_root(level, error.detail)
            raise
        self._suitability.note_root(level, None)
        return parts.sandbox()

    async def _taken_over(
        self,
        session: Session,
        level: Level,
        limits: SessionLimits,
        looking: asyncio.Task[str],
        files: str | None,
    ) -> Sandbox | None:
        """A sandbox that waited, now the session's; None if there is none, or it failed."""
        image = session.terms.image
        # While the engine answers, its latest known id is used.
        known = self.pool.image_id(image)
        image_id = await asyncio.shield(looking) if known is None else known
        shape, waiting = Shape.of(image, image_id, level), None
        if files is not None:
            waiting = self.pool.take(shape.beginning_as(files, limits), session.owner)
        if waiting is None and has_usual_limits(level, limits):
            waiting = self.pool.take(shape, session.owner)
        if waiting is None:
            return None
        name, failed, taken = waiting.parts.plan.name, False, False
        try:
            await self._starter.take_over(waiting.parts, session, limits, looking)
            taken = True
        except ImageChangedError as error:
            self.pool.image_changed(image, await looking)
            log.info("sandbox %s is not used: %s", name, error.detail)
        except (SandboxUnavailableError, MountError) as error:
            failed = True
            log.warning("sandbox %s can't be taken over: %s", name, error.detail)
        finally:
            if not taken:
                self.pool.not_taken_over(waiting, session.owner, failed=failed)
        if not taken:
            return None
        self.pool.taken_over(waiting, session.owner)
        return waiting.parts.sandbox()

    async def adopt(self, session: Session, container: Container) -> Sandbox:
        """Adopts a sandbox that an earlier control plane started. If that fails, the sandbox stays.

        Raises: SandboxUnavailableError, OSError.
        """
        return (await self._starter.adopt(session, container)).sandbox()

    async def quiesce(self, sandbox: Sandbox, reason: str, *, at_once: bool = False) -> bool:
        """Ends running commands and takes over their events, unless the agent can't respond.

        Commands get 2 s between TERM and KILL; with `at_once`, only KILL. Returns whether the agent
        handed over everything it knew.
        """
        params = {"reason": reason, "at_once": at_once}
        try:
            await sandbox.link.request("shutdown", params, _SHUTDOWN_SECONDS)
            await sandbox.link.settled()
        except PaddockError as error:
            log.info("sandbox %s did not shut down by itself: %s", sandbox.name, error.detail)
            return False
        return True

    async def discard(self, sandbox: Sandbox) -> None:
        """Removes a sandbox whose container has ended, or whose agent must not be asked."""
        await self.silence(sandbox)
        await self.remove(sandbox)

    async def silence(self, sandbox: Sandbox) -> None:
        """Stops listening to it, after recording its reports and the ends of its terminals."""
        await self._subscribers.gone(sandbox)
        await sandbox.link.close()
        # Requests that still waited for an answer have failed.
        await self._subscribers.gone(sandbox)

    async def ended(self, session: Session) -> None:
        """Closes what a session that has ended held outside of its sandbox."""
        await self._subscribers.ended(session)

    async def remove(self, sandbox: Sandbox) -> None:
        """Removes the rest of a silenced sandbox; the next start finds what can't be removed."""
        await sandbox.parts.close()
        self.pool.wake()

    async def unstage(self, session: Session) -> None:
        """Discards what an ended session has staged, once its sandbox is removed.

        What can't be removed goes when the next session uses the workspace.
        """
        if not session.stages or not session.workspace.slot:
            return
        try:
            await self._workspaces.unstage(session.workspace, session.key)
        except PaddockError as error:
            log.error("what session %s staged is not removed: %s", session.id, error.detail)

    async def leave(self, sandbox: Sandbox) -> None:
        """Releases it without ending it; the next control plane adopts it."""
        await sandbox.parts.leave()

    async def close(self) -> None:
        """Waits a limited time for sandboxes that are being released."""
        await self._looks.close()
        await self._releases.drain()

    def _taken(self, session: Session, level: Level) -> list[str]:
        """Paths at which the session can have neither a volume nor its workspace."""
        names = (*level.mounts, *session.terms.mounts)
        listed = self._settings.mounts
        return [
            *(listed[name].target for name in names if name in listed),
            *(level.confinement.read),
            *(level.confinement.execute),
        ]

    def _mounts(self, session: Session, level: Level) -> dict[str, OperatorMount]:
        """The session's mounts at that level, by name. Raises: EngineUnavailableError."""
        try:
            return chosen(self._settings.mounts, (*level.mounts, *session.terms.mounts))
        except ValidationError as error:  # the list changed after the session requested it
            raise EngineUnavailableError(error.detail) from None
