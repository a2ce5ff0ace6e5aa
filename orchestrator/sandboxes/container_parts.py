"""Parts of a sandbox at the engine: its container, and the rates that it is held to."""

from orchestrator.checks.throttle import node_of
from orchestrator.engine.base import (
    LABEL_PROTOCOL,
    LABEL_SESSION,
    Container,
    Engine,
    SandboxSpec,
)
from orchestrator.errors import SandboxUnavailableError
from orchestrator.sandboxes.holding import Holding
from orchestrator.sandboxes.parts import LABEL_LEVEL, LABEL_SANDBOX, Part, Plan
from sandbox_agent.protocol import PROTOCOL_VERSION


class ContainerPart(Part):
    """The container, with what the parts before it offer."""

    name = "container"

    def __init__(self, engine: Engine, runtime: str | None) -> None:
        self._engine = engine
        self._runtime = runtime

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError; the engine leaves nothing then."""
        plan.container_id = await self._engine.create(self._spec(plan))

    async def adopt(self, plan: Plan, container: Container) -> None:
        """It is the one that was found."""
        plan.container_id = container.id

    async def close(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError."""
        if plan.container_id is not None:
            await self._engine.remove(plan.container_id)

    def _spec(self, plan: Plan) -> SandboxSpec:
        return SandboxSpec(
            name=f"paddock-{plan.name}",
            image=plan.session.image,
            labels={
                LABEL_SESSION: plan.session.key,
                LABEL_SANDBOX: plan.name,
                LABEL_LEVEL: plan.level.name,
                LABEL_PROTOCOL: str(PROTOCOL_VERSION),
                **plan.labels,
            },
            binds=tuple(plan.binds),
            limits=plan.limits,
            tmp_exec=not plan.level.noexec,
            network=plan.network,
            runtime=self._runtime,
            rates=plan.level.rates,
            disk=None if plan.disk is None else node_of(plan.disk),
        )


class RatesPart(Part):
    """What the container is held to besides its configuration: names, rates of its level."""

    name = "rates"

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    async def open(self, plan: Plan) -> None:
        """Raises: EngineUnavailableError: the container is not to be used then."""
        if plan.container_id is None:
            raise SandboxUnavailableError("the sandbox has no container")
        await self._holding.begin(plan.level, plan.container_id, plan.network, plan.disk)

    async def close(self, plan: Plan) -> None:
        """Before the container is removed, which has to wait for what is written."""
        await self._holding.end(plan.directory)
