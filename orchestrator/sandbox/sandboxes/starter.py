"""Starts sandboxes: for a session, or ahead of one, which then takes it over."""

import asyncio
from collections.abc import Mapping
from functools import partial

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.ground.fair_share import FairShare
from orchestrator.ground.task_scope import TaskScope
from orchestrator.host.engine.base import Container
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.link.messages import AgentEvent, Hello
from orchestrator.host.link.vouching import Vouching
from orchestrator.host.node.base import Node
from orchestrator.record.audit.ledger import Ledger
from orchestrator.rules.policy.levels import Level, SessionLimits
from orchestrator.sandbox.egress.authority import public_directory
from orchestrator.sandbox.sandboxes.agent_parts import (
    AgentPart,
    HelloPart,
    LinkPart,
    PackPart,
    PreparePart,
)
from orchestrator.sandbox.sandboxes.container_parts import ContainerPart, FlagsPart, RatesPart
from orchestrator.sandbox.sandboxes.host_parts import (
    AttachPart,
    DirectoryPart,
    MountsPart,
    NetworkPart,
    PointPart,
    QuotaPart,
    RulesPart,
    TrustPart,
    VolumesPart,
    WorkspacePart,
)
from orchestrator.sandbox.sandboxes.layer_part import LayerPart
from orchestrator.sandbox.sandboxes.mounted_agent_part import MountedAgentPart
from orchestrator.sandbox.sandboxes.open_network import OpenNetworkUse
from orchestrator.sandbox.sandboxes.parts import LABEL_SANDBOX, Assembly, Part, Plan, Tenancy
from orchestrator.sandbox.sandboxes.restrictions import Restrictions
from orchestrator.sandbox.sandboxes.sandbox_directories import SandboxDirectories
from orchestrator.sandbox.sandboxes.subscribers import Subscribers
from orchestrator.sandbox.sandboxes.suitability import Suitability
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sandbox.volumes.volumes import Volumes
from orchestrator.settings.operator_mounts import OperatorMount
from orchestrator.settings.settings import Settings
from orchestrator.state.directory import SandboxDirectory
from orchestrator.state.session import Session
from orchestrator.state.shapes import Shape
from paddock.contract.words import Start

# The time limit for each answer of an agent that is already there. Without one, the session gets
# another sandbox.
_TAKE_OVER_SECONDS = 3.0


class ImageChangedError(SandboxUnavailableError):
    """The session's image is not the one from which a sandbox was started."""


class Starter:
    """Makes the parts of sandboxes. A sandbox that can't start or be taken over leaves nothing."""

    def __init__(
        self,
        settings: Settings,
        node: Node,
        ledger: Ledger,
        workspaces: Workspaces,
        volumes: Volumes,
        subscribers: Subscribers,
        suitability: Suitability,
        ways: tuple[Part, ...],
        releases: TaskScope,
        mounted_agent: MountedAgentPart,
        open_network: OpenNetworkUse,
        vouching: Vouching,
    ) -> None:
        """`ways` connect with the outside. `releases` holds the releases of sandboxes."""
        engine = node.engine
        self._settings = settings
        self._node = node
        self._ledger = ledger
        self._workspaces = workspaces
        self._subscribers = subscribers
        self._share = FairShare()
        self._releases = releases
        restrictions, directories = Restrictions(engine, settings.image), SandboxDirectories()
        network = NetworkPart(open_network)
        directory = DirectoryPart(directories)
        trust = TrustPart(public_directory(settings.state_dir))
        quota = QuotaPart(workspaces, restrictions)
        agent = AgentPart(engine, settings.pip_index, vouching)
        self._hello = HelloPart(node, suitability, settings.hello_timeout)
        container: tuple[Part, ...] = (
            mounted_agent,
            LinkPart(),
            ContainerPart(node, settings.runtime),
            RatesPart(restrictions),
            self._hello,
            FlagsPart(node),
        )
        # Each part may use what earlier parts offer. They are released in reverse: the agent's
        # link, the rates, the container, and then the mounts made for it.
        mounts = (MountsPart(settings, directories), VolumesPart(volumes, directories))
        layer = LayerPart(engine, directories, workspaces, settings.min_free_disk_bytes)
        workspace = (quota, WorkspacePart(directories), *mounts, layer)
        self._first: tuple[Part, ...] = (network, directory, trust, *workspace, *container)
        self._ways = ways
        self._own: tuple[Part, ...] = (agent, PackPart())
        self._ahead: tuple[Part, ...] = (
            *(network, directory, trust, PointPart(directories), *container, PreparePart()),
        )
        rules = RulesPart(open_network)
        self._late: tuple[Part, ...] = (rules, AttachPart(quota, directories))
        last = AgentPart(engine, settings.pip_index, vouching, _TAKE_OVER_SECONDS)
        self._last: tuple[Part, ...] = (last,)

    def add(self, way: Part) -> None:
        """Opens another part after the ways that there are."""
        self._ways = (*self._ways, way)

    @property
    def _whole(self) -> tuple[Part, ...]:
        """The parts of a sandbox that is started for its session."""
        return (*self._first, *self._ways, *self._own)

    async def start(
        self,
        session: Session,
        level: Level,
        limits: SessionLimits,
        mounts: Mapping[str, OperatorMount],
        image_id: str,
    ) -> Assembly:
        """A sandbox for the session; `image_id` is that of its image's name.

        Raises: the errors of the parts.
        """
        directory = SandboxDirectory.fresh(self._settings.state_dir)
        parts = self._assembly(
            Tenancy(session), session.terms.image, level, limits, directory, self._whole, mounts
        )
        parts.plan.image_id = image_id
        await parts.open()
        return parts

    async def start_ahead(self, shape: Shape) -> Assembly:
        """A sandbox whose agent waits for its session. Raises: the errors of the parts."""
        directory = SandboxDirectory.fresh(self._settings.state_dir)
        limits = shape.limits
        # The image is named by its id, because its name may get another meaning.
        parts = self._assembly(
            Tenancy(), shape.image_id, shape.level, limits, directory, self._ahead
        )
        parts.plan.start, parts.plan.image_id = Start.WARM, shape.image_id
        await parts.open()
        if shape.files is None:
            self._workspaces.expect(limits.workspace_bytes)
        return parts

    async def take_over(
        self,
        parts: Assembly,
        session: Session,
        limits: SessionLimits,
        image_id: asyncio.Future[str],
    ) -> None:
        """Gives a sandbox that was started ahead to the session; if that fails, removes it.

        `limits` differ from its own in the workspace's size only. `image_id` is the present id of
        the session's image. Raises: the errors of the parts; ImageChangedError.
        """
        plan = parts.plan
        try:
            plan.tenancy.begin(session)
            plan.limits = limits
            if plan.link.hello is not None:
                self._subscribers.hello(session, plan.link.hello)
            await parts.extend((*self._late, *self._ways))
            # The workspace is already there. Nothing but the agent of an image that the operator
            # had listed runs beside it, and that agent does nothing without its configuration.
            if await image_id != plan.image:
                raise ImageChangedError("the name of its image has another meaning now")
            await parts.extend(self._last)
        except BaseException:
            await parts.close()
            raise

    async def adopt(self, session: Session, container: Container) -> Assembly:
        """The sandbox that an earlier control plane started. Raises: the errors of the parts."""
        place = self._settings.state_dir / "sandboxes" / container.labels[LABEL_SANDBOX]
        directory = SandboxDirectory(place)
        image, level, limits = session.terms.image, session.level, session.limits
        parts = self._assembly(Tenancy(session), image, level, limits, directory, self._whole)
        await parts.adopt(container)
        return parts

    def _assembly(
        self,
        tenancy: Tenancy,
        image: str,
        level: Level,
        limits: SessionLimits,
        directory: SandboxDirectory,
        parts: tuple[Part, ...],
        mounts: Mapping[str, OperatorMount] | None = None,
    ) -> Assembly:
        link = self._link(tenancy, directory)
        plan = Plan(tenancy, image, level, limits, mounts or {}, directory, link)
        return Assembly(parts, plan, self._releases)

    def _link(self, tenancy: Tenancy, directory: SandboxDirectory) -> AgentLink:
        """A link that reports for the session; an agent without one has nothing to report."""

        async def committed(boot_id: str) -> int:
            if tenancy.vacant:
                return 0
            return await self._ledger.agent_head(tenancy.session.key, boot_id)

        async def event(reported: AgentEvent) -> None:
            await self._subscribers.event(tenancy.session, reported)

        def hello(received: Hello) -> None:
            if not tenancy.vacant:
                self._subscribers.hello(tenancy.session, received)

        async def violation(reason: str) -> None:
            await self._subscribers.violation(tenancy.session, reason)

        listen = partial(self._node.listen, directory.run)
        return AgentLink(listen, committed, event, hello, violation, self._share)
