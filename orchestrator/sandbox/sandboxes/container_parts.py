"""Parts of a sandbox in the engine: its container and its rates."""

import logging
from os import ST_RDONLY

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.host.engine.base import (
    LABEL_PROTOCOL,
    LABEL_SESSION,
    Bind,
    Container,
    MountedAgent,
    SandboxSpec,
)
from orchestrator.host.engine.runtimes import KEEPS_FLAGS
from orchestrator.host.node.base import Node
from orchestrator.host.node.container_kill import FirstProcess
from orchestrator.host.node.throttle import node_of
from orchestrator.rules.policy.levels import ROOT
from orchestrator.sandbox.sandboxes.parts import LABEL_LEVEL, LABEL_SANDBOX, Part, Plan
from orchestrator.sandbox.sandboxes.restrictions import Restrictions
from paddock.contract.words import Start
from sandbox_agent.decide.facilities import FLAGS
from sandbox_agent.decide.mounted_agent import PLACE
from sandbox_agent.decide.protocol import PROTOCOL_VERSION

log = logging.getLogger(__name__)

# Tells an adopted sandbox's start; absent from the containers of earlier versions.
LABEL_START = "paddock.start"


class ContainerPart(Part):
    """The container, built from what the parts before it offer."""

    name = "container"

    def __init__(self, node: Node, runtime: str | None) -> None:
        self._node = node
        self._engine = node.engine
        self._runtime = runtime

    async def open(self, plan: Plan) -> None:
        """Raises EngineUnavailableError; the engine then leaves nothing behind."""
        if plan.agent is None:
            raise SandboxUnavailableError("the sandbox has no agent")
        plan.container_id = await self._engine.create(self._spec(plan, plan.agent))

    async def adopt(self, plan: Plan, container: Container) -> None:
        """Uses the container that was found."""
        plan.container_id = container.id
        plan.start = Start(container.labels.get(LABEL_START, Start.COLD))

    async def close(self, plan: Plan) -> None:
        """Raises EngineUnavailableError."""
        if plan.container_id is None:
            return
        await end(self._node, plan.container_id, plan.first)
        await self._engine.remove(plan.container_id)

    def _spec(self, plan: Plan, agent: MountedAgent) -> SandboxSpec:
        return SandboxSpec(
            name=f"paddock-{plan.name}",
            image=plan.image,
            labels={
                # A container's labels can't be changed once its session is known.
                **({} if plan.tenancy.vacant else {LABEL_SESSION: plan.session.key}),
                LABEL_START: plan.start,
                LABEL_SANDBOX: plan.name,
                LABEL_LEVEL: plan.level.name,
                LABEL_PROTOCOL: str(PROTOCOL_VERSION),
                **plan.labels,
            },
            binds=tuple(plan.binds),
            limits=plan.limits,
            tmp_exec=not plan.level.noexec,
            network=plan.network,
            agent=agent,
            runtime=plan.level.runtime or self._runtime,
            rates=plan.level.rates,
            disk=None if plan.disk is None else node_of(plan.disk),
            namespaces=plan.level.user == ROOT,
        )


class FlagsPart(Part):
    """The flags of the container's mounts, under a runtime that may not have kept them."""

    name = "flags of its mounts"

    def __init__(self, node: Node) -> None:
        self._node = node

    async def open(self, plan: Plan) -> None:
        """Raises: OSError."""
        if plan.runtime != KEEPS_FLAGS and plan.agent is not None:
            mounted = Bind(plan.agent.directory, PLACE, read_only=True)
            flags = await self._node.keep_flags(plan.first, [*plan.binds, mounted])
            # What is read-only is so at every level.
            demanded = ST_RDONLY if FLAGS in plan.level.requires.without else ~0
            plan.flags = {place: each & demanded for place, each in flags.items()}


async def end(node: Node, container_id: str, first: FirstProcess | None) -> None:
    """Kills what is in a container before its engine removes it, which can't end a frozen one."""
    try:
        await node.end(container_id, first)
    except Exception as error:  # noqa: BLE001 - whatever it is, the engine removes the container
        log.warning("the engine has to end container %s: %s", container_id[:12], error)


class RatesPart(Part):
    """Restrictions besides the container's configuration: name servers, and the level's rates."""

    name = "rates"

    def __init__(self, restrictions: Restrictions) -> None:
        self._restrictions = restrictions

    async def open(self, plan: Plan) -> None:
        """Raises EngineUnavailableError; the container must not be used then."""
        if plan.container_id is None:
            raise SandboxUnavailableError("the sandbox has no container")
        await self._restrictions.begin(plan.level, plan.container_id, plan.network, plan.disk)

    async def close(self, plan: Plan) -> None:
        """Runs before the container is removed, because the removal waits for pending writes."""
        await self._restrictions.end(plan.directory)
