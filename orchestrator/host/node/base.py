"""The interface to a host that runs sandboxes; nothing else examines the host."""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from orchestrator.host.engine.base import Bind, Engine
from orchestrator.host.node.container_kill import FirstProcess
from orchestrator.host.node.host import Host
from orchestrator.host.node.processes import Earlier, Measured, Usage
from orchestrator.host.workspace.storage import Storage
from sandbox_agent.decide.facilities import Kernel


@dataclass(frozen=True, slots=True)
class Resources:
    """The host's free resources, in bytes; the disk is that of the workspaces."""

    free_memory_bytes: int
    free_disk_bytes: int


@dataclass(frozen=True, slots=True)
class Load:
    """The host's load: CPU seconds since its boot by mode, and bytes."""

    cpu_seconds: Mapping[str, float]
    cpus: int
    memory_bytes: int
    free_memory_bytes: int
    disk_bytes: int
    free_disk_bytes: int


class Look(NamedTuple):
    """A container's processes, and the data for the next measurement; None: not visible.

    `seconds` is the CPU time that the measurement took.
    """

    found: tuple[Measured, Earlier] | None
    seconds: float


@dataclass(frozen=True, slots=True)
class Gauged:
    """The usage of sandboxes by container id, without those that are not visible, and the load.

    `at` is in seconds of the monotonic clock. `cpu_percent` of a usage is always 0.
    """

    at: float
    load: Load
    usages: Mapping[str, Usage]


class Node(Host, Protocol):
    """A host: its features, its free resources, and the processes of its containers."""

    @property
    def engine(self) -> Engine:
        """The engine that creates its containers."""

    @property
    def kernel(self) -> Kernel:
        """The facilities of its kernel, outside of any runtime."""

    @property
    def storage(self) -> Storage:
        """The storage of its workspaces."""

    async def resources(self) -> Resources:
        """Its free resources. Raises: TimeoutError if its disk does not answer."""

    def load(self) -> Load:
        """Its load. Blocks for as long as its disk takes."""

    def listen(self, run_dir: Path) -> socket.socket:
        """The socket in a sandbox's run directory to which its agent connects. Raises: OSError."""

    def listen_for_egress(self, directory: Path) -> socket.socket:
        """The socket to which a sandbox's forwarder connects. Raises: OSError."""

    def listen_for_ports(self, directory: Path) -> socket.socket:
        """The socket to which a sandbox's process for ports connects. Raises: OSError."""

    def listen_for_questions(self, directory: Path, uid: int) -> socket.socket:
        """The socket to which a session's commands, with that uid, connect. Raises: OSError."""

    async def keep_flags(self, first: FirstProcess | None, binds: Sequence[Bind]) -> dict[str, int]:
        """The flags that each of a container's mounts must have inside, as in `statvfs`.

        Sets them, where its runtime is known to this host only by its `first` process. Raises:
        OSError, TimeoutError if a disk does not answer.
        """

    async def first_process(self, container_id: str, pid: int) -> FirstProcess | None:
        """The facts about a container's first process, the host's `pid`; None: not visible.

        Raises: TimeoutError.
        """

    async def measure(
        self, container_id: str, first: FirstProcess | None, earlier: Earlier
    ) -> Look:
        """A container's processes and usage. May take as long as the kernel does.

        Raises: TimeoutError if too many measurements are running.
        """

    async def gauge(self, containers: Mapping[str, int | None]) -> Gauged:
        """What containers use, given with their first pid where it is known, and the host's load.

        Raises: OSError, TimeoutError.
        """

    async def freeze(self, container_id: str, first: FirstProcess | None) -> bool:
        """Whether every process of a container is frozen now, without its engine.

        False if that can't be done here, or somebody else has frozen it. Raises: OSError,
        RuntimeError, TimeoutError.
        """

    async def thaw(self, container_id: str, first: FirstProcess | None) -> bool:
        """Lets a container continue that is frozen; whether it was. Raises: likewise."""

    async def end(self, container_id: str, first: FirstProcess | None) -> None:
        """Kills every process of a container, also of a frozen one. Raises: likewise."""

    async def kill(
        self, container_id: str, first: FirstProcess | None, *, spare_first: bool = False
    ) -> int:
        """Kills every process of a container without its engine; returns how many.

        `spare_first`: all but its first process. Raises: OSError, RuntimeError, TimeoutError.
        """
