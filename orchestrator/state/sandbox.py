"""One session's sandbox, as the rest of the control plane uses it."""

import asyncio
from dataclasses import dataclass, field

from orchestrator.ground.errors import SandboxUnavailableError
from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.node.killing import FirstProcess
from orchestrator.host.node.processes import Earlier, Measured
from orchestrator.sandbox.sandboxes.parts import Assembly
from orchestrator.state.directory import SandboxDirectory
from paddock.contract.words import Start


@dataclass(slots=True, eq=False)
class Looks:
    """The examinations of one sandbox: the latest, the base for the next, and a running one."""

    latest: Measured | None = None
    earlier: Earlier = field(default_factory=Earlier)
    under_way: asyncio.Future[Measured | None] | None = None


@dataclass(slots=True, eq=False)
class Sandbox:
    """A sandbox whose agent has said hello (or will, once it is resumed)."""

    parts: Assembly
    directory: SandboxDirectory
    container_id: str
    link: AgentLink
    network: str | None
    mounts: tuple[str, ...]  # names on the operator's list
    # Used to kill it if the engine can't; None: not visible from here.
    first: FirstProcess | None
    # Reported by the engine: cpus, memory_bytes, pids; None: it did not answer.
    limits: dict[str, float] | None
    start: Start = Start.COLD
    looks: Looks = field(default_factory=Looks)
    # Set once it is to stay frozen: whether it can be thawed.
    freezing: asyncio.Task[bool] | None = None

    @property
    def name(self) -> str:
        """16 hex digits, on the host and in the container's labels."""
        return self.directory.name

    def shut_off(self) -> None:
        """Ends its connections with the outside at once; refuses others until `reopen`."""
        for way in (self.parts.plan.door, self.parts.plan.tunnels):
            if way is not None:
                way.shut()

    def recheck_connections(self) -> None:
        """Ends its connections to the outside that are not allowed any more."""
        if self.parts.plan.door is not None:
            self.parts.plan.door.recheck()

    def reopen(self) -> None:
        """Its connections with the outside are decided again."""
        for way in (self.parts.plan.door, self.parts.plan.tunnels):
            if way is not None:
                way.reopen()


def assembled(parts: Assembly) -> Sandbox:
    """The sandbox with these open parts. Raises: SandboxUnavailableError without a container."""
    plan = parts.plan
    if plan.container_id is None:
        raise SandboxUnavailableError("the sandbox has no container")
    return Sandbox(
        parts,
        plan.directory,
        plan.container_id,
        plan.link,
        plan.network,
        plan.mount_names,
        plan.first,
        plan.container_limits,
        plan.start,
    )
