"""One session's sandbox, as the rest of the control plane uses it."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from orchestrator.host.link.agent_link import AgentLink
from orchestrator.host.node.container_kill import FirstProcess
from orchestrator.host.node.processes import Earlier, Measured
from orchestrator.host.workspace.freezing import Freezes
from orchestrator.state.directory import SandboxDirectory
from paddock.contract.words import Start


class Parts(Protocol):
    """What a sandbox consists of; only `Sandboxes` releases it."""

    async def close(self) -> None:
        """Removes the sandbox, and returns when it is removed as far as possible."""

    async def leave(self) -> None:
        """Releases the sandbox without ending it."""


class Way(Protocol):
    """A connection of a sandbox with the outside."""

    def shut(self) -> None:
        """Ends its connections at once; refuses others until `reopen`."""

    def recheck(self) -> None:
        """Ends its connections that are not allowed any more."""

    def reopen(self) -> None:
        """Its connections are decided again."""


@dataclass(slots=True, eq=False)
class Looks:
    """The examinations of one sandbox: the latest, the base for the next, and a running one."""

    latest: Measured | None = None
    earlier: Earlier = field(default_factory=Earlier)
    under_way: asyncio.Future[Measured | None] | None = None


@dataclass(slots=True, eq=False)
class Sandbox:
    """A sandbox whose agent has said hello (or will, once it is resumed)."""

    parts: Parts
    session_key: str  # whose it is for good
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
    ways: Sequence[Way] = ()
    runtime: str | None = None  # as the engine calls it; None: it did not answer
    # Whether not the engine has linked it to its network; None: it has none, or is not known.
    own_link: bool | None = None
    looks: Looks = field(default_factory=Looks)
    # Set once it is to stay frozen: whether it can be thawed.
    freezing: asyncio.Task[bool] | None = None
    # Whether its control group is frozen, of which its engine does not know.
    frozen_here: bool = False
    # Copies of its workspace that what runs in it waits for.
    freezes: Freezes = field(default_factory=Freezes)

    def __post_init__(self) -> None:
        self.link.when_stopping(self.freezes.end)

    @property
    def name(self) -> str:
        """16 hex digits, on the host and in the container's labels."""
        return self.directory.name

    def shut_off(self) -> None:
        """Ends its connections with the outside at once; refuses others until `reopen`.

        A copy of its workspace is given up: what waits for it could be neither frozen nor killed.
        """
        self.freezes.end()
        for way in self.ways:
            way.shut()

    def recheck_connections(self) -> None:
        """Ends its connections to the outside that are not allowed any more."""
        for way in self.ways:
            way.recheck()

    def reopen(self) -> None:
        """Its connections with the outside are decided again."""
        for way in self.ways:
            way.reopen()
