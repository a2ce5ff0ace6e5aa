"""What the domain needs of a host that sandboxes run on; nothing else looks at the host."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from orchestrator.engine.base import Engine
from orchestrator.node.host import Host
from orchestrator.node.killing import FirstProcess
from orchestrator.node.processes import Earlier, Measured
from orchestrator.workspace.storage import Storage


@dataclass(frozen=True, slots=True)
class Resources:
    """What the host has left, in bytes; the disk is the one that workspaces are on."""

    free_memory_bytes: int
    free_disk_bytes: int


@dataclass(frozen=True, slots=True)
class Load:
    """How busy the host is: CPU seconds since its boot by mode, and bytes."""

    cpu_seconds: Mapping[str, float]
    cpus: int
    memory_bytes: int
    free_memory_bytes: int
    disk_bytes: int
    free_disk_bytes: int


class Look(NamedTuple):
    """What a container's processes do, and the looks to give the next time; None: not to be seen.

    `seconds` of processor time are what the look has cost.
    """

    found: tuple[Measured, Earlier] | None
    seconds: float


class Node(Host, Protocol):
    """A host: what it offers and has left, and the processes of its containers."""

    @property
    def engine(self) -> Engine:
        """What its containers are made with."""

    @property
    def storage(self) -> Storage:
        """Where its workspaces are kept."""

    async def resources(self) -> Resources:
        """What it has left. Raises: TimeoutError where its disk does not answer."""

    def load(self) -> Load:
        """How busy it is. Blocks for as long as its disk takes."""

    async def measure(
        self, container_id: str, first: FirstProcess | None, earlier: Earlier
    ) -> Look:
        """A container's processes and usage. It may take as long as the kernel does.

        Raises: TimeoutError where too many looks are under way.
        """

    async def kill(
        self, container_id: str, first: FirstProcess | None, *, spare_first: bool = False
    ) -> int:
        """Kills every process of a container, without its engine; returns how many.

        `spare_first`: all but its first process. Raises: OSError, RuntimeError, TimeoutError.
        """
