"""Starts, adopts and releases the sandboxes of sessions."""

import logging
from functools import partial

from orchestrator.audit.ledger import Ledger
from orchestrator.config.operator_mounts import OperatorMount, chosen
from orchestrator.config.settings import Settings
from orchestrator.engine.base import Container
from orchestrator.errors import EngineUnavailableError, PaddockError, ValidationError
from orchestrator.link.agent_link import AgentLink
from orchestrator.link.fair_share import FairShare
from orchestrator.node.base import Node
from orchestrator.policy.levels import Level, SessionLimits
from orchestrator.sandboxes.agent_parts import AgentPart, LinkPart
from orchestrator.sandboxes.container_parts import ContainerPart, RatesPart
from orchestrator.sandboxes.directory import SandboxDirectory
from orchestrator.sandboxes.holding import Holding
from orchestrator.sandboxes.host_parts import (
    DirectoryPart,
    MountsPart,
    NetworkPart,
    QuotaPart,
    WorkspacePart,
)
from orchestrator.sandboxes.parts import LABEL_SANDBOX, Assembly, Part, Plan
from orchestrator.sandboxes.placing import Places
from orchestrator.sandboxes.sandbox import Sandbox, assembled
from orchestrator.sandboxes.subscribers import Subscribers
from orchestrator.sandboxes.suitability import Suitability
from orchestrator.sessions.session import Session
from orchestrator.sessions.workspaces import Workspaces
from orchestrator.task_scope import TaskScope

log = logging.getLogger(__name__)

_SHUTDOWN_SECONDS = 6.0


class Sandboxes:
    """All sandboxes. A sandbox that could not start leaves nothing behind."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        ledger: Ledger,
        workspaces: Workspaces,
        subscribers: Subscribers,
    ) -> None:
        engine = node.engine
        self._settings = settings
        self._node = node
        self._ledger = ledger
        self._subscribers = subscribers
        self._share = FairShare()
        self._releases = TaskScope("the release of a sandbox")
        self._suitability = Suitability(engine, node)
        holding, places = Holding(engine, settings.image), Places()
        self._agent = AgentPart(node, self._suitability, settings.hello_timeout)
        # Each part may use what earlier parts offer. They are released in reverse: the agent's
        # link, the rates, the container, and then the mounts made for it.
        self._parts: tuple[Part, ...] = (
            NetworkPart(engine, settings.image),
            DirectoryPart(places),
            QuotaPart(workspaces, holding),
            WorkspacePart(places),
            MountsPart(settings, places),
            LinkPart(),
            ContainerPart(engine, settings.runtime),
            RatesPart(holding),
            self._agent,
        )

    async def check_level(self, level: Level) -> None:
        """Raises UnmetError if this host can't enforce the level, before anything begins."""
        await self._suitability.check_level(level)

    async def start(self, session: Session, level: Level, limits: SessionLimits) -> Sandbox:
        """Starts a sandbox for the session at that level and waits for its agent's hello.

        No other sandbox may use the session's workspace, because its size is set here. Raises:
        EngineUnavailableError, SandboxUnavailableError, ValidationError, and the errors of
        `Workspaces.prepare`.
        """
        await self.check_level(level)
        mounts = self._mounts(session, level)
        await self._suitability.check_image(session.image)
        directory = SandboxDirectory.fresh(self._settings.state_dir)
        link = self._link(session, directory)
        plan = Plan(session, level, limits, mounts, directory, link)
        parts = Assembly(self._parts, plan, self._releases)
        await parts.open()
        return assembled(parts)

    async def adopt(self, session: Session, container: Container) -> Sandbox:
        """Adopts a sandbox that an earlier control plane started. If that fails, the sandbox stays.

        Raises: SandboxUnavailableError, OSError.
        """
        place = self._settings.state_dir / "sandboxes" / container.labels[LABEL_SANDBOX]
        directory = SandboxDirectory(place)
        link = self._link(session, directory)
        plan = Plan(session, session.level, session.limits, {}, directory, link)
        parts = Assembly(self._parts, plan, self._releases)
        await parts.adopt(container)
        return assembled(parts)

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

    async def remove(self, sandbox: Sandbox) -> None:
        """Removes the rest of a silenced sandbox; the next start finds what can't be removed."""
        await sandbox.parts.close()

    async def leave(self, sandbox: Sandbox) -> None:
        """Releases it without ending it; the next control plane adopts it."""
        await sandbox.parts.leave()

    async def close(self) -> None:
        """Waits a limited time for sandboxes that are being released."""
        await self._releases.drain()

    def _mounts(self, session: Session, level: Level) -> dict[str, OperatorMount]:
        """The session's mounts at that level, by name. Raises: EngineUnavailableError."""
        try:
            return chosen(self._settings.mounts, (*level.mounts, *session.mounts))
        except ValidationError as error:  # the list changed after the session requested it
            raise EngineUnavailableError(error.detail) from None

    def _link(self, session: Session, directory: SandboxDirectory) -> AgentLink:
        return AgentLink(
            partial(self._node.listen, directory.run),
            lambda boot_id: self._ledger.agent_head(session.key, boot_id),
            lambda event: self._subscribers.event(session, event),
            lambda hello: self._subscribers.hello(session, hello),
            lambda reason: self._subscribers.violation(session, reason),
            self._share,
        )
