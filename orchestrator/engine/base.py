"""What Paddock needs of a container engine, and nothing more.

Every call is bounded in time and raises `EngineUnavailableError` when the engine
refuses, fails or does not answer. Methods that remove something succeed when it is
gone already.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.errors import EngineUnavailableError

LABEL_INSTANCE = "paddock.instance"
LABEL_SESSION = "paddock.session"
LABEL_PROTOCOL = "paddock.protocol"
LABEL_INPUTS = "paddock.inputs"


class ContainerState(StrEnum):
    """A container's state as the engine reports it."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path shown inside the sandbox."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class Limits:
    """What one sandbox may use: `cpus` in cores, the rest in bytes and processes."""

    cpus: float
    memory_bytes: int
    pids: int
    tmp_bytes: int
    shm_bytes: int  # 0: no /dev/shm and no /dev/mqueue


@dataclass(frozen=True, slots=True)
class Rates:
    """The most that one sandbox moves, in bytes per second; None: whatever it can."""

    disk_read: int | None = None
    disk_write: int | None = None
    network_receive: int | None = None
    network_send: int | None = None

    @property
    def disk(self) -> bool:
        """Whether the workspace's disk has one."""
        return self.disk_read is not None or self.disk_write is not None

    @property
    def network(self) -> bool:
        """Whether the network has one."""
        return self.network_receive is not None or self.network_send is not None


NO_RATES = Rates()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A sandbox's container, as the session's level demands it."""

    name: str
    image: str
    labels: dict[str, str]
    binds: tuple[Bind, ...]
    limits: Limits
    tmp_exec: bool
    network: str | None  # a network's name; None: no network at all
    runtime: str | None = None  # None: the engine's default
    rates: Rates = NO_RATES
    disk: str | None = None  # of the workspace, a path in /dev: where its rates hold


@dataclass(frozen=True, slots=True)
class OpenNetwork:
    """The bridge for sandboxes with network access, by its name, and whom they ask for names."""

    name: str
    resolvers: tuple[str, ...]  # IPv4 addresses


@dataclass(frozen=True, slots=True)
class Container:
    """A container that exists; `exit_code` is None until it has ended."""

    id: str
    name: str
    labels: dict[str, str]
    state: ContainerState
    exit_code: int | None = None
    oom_killed: bool = False
    # Limits as the engine reports them: cpus, memory_bytes, pids (absent in lists).
    limits: dict[str, float] = field(default_factory=dict)
    # Of its first process, as the engine's host has it; None unless it runs (and in lists).
    pid: int | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image on this engine."""

    id: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine's own account of itself."""

    version: str
    cgroup_version: str
    rootless: bool
    userns_remap: bool
    # What this engine's kernel can't limit: cpus, memory, swap, pids.
    unlimited: tuple[str, ...] = ()
    # Runtimes that it was configured with.
    runtimes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxKernel:
    """What of a kernel is seen in a sandbox: a runtime may offer less than the host has."""

    landlock_abi: int  # 0: no Landlock
    seccomp: bool  # filters with notification


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """Something happened to one of our containers.

    `action` is `die`, `oom`, `pause`, `unpause`, or `resync` (with an empty
    `container_id`): the stream has begun, or was interrupted; events may be missing, list
    again.
    """

    action: str
    container_id: str
    labels: dict[str, str]
    exit_code: int | None = None


def missing_image(name: str) -> EngineUnavailableError:
    """What to say when the engine does not have the image."""
    return EngineUnavailableError(
        f"image {name} is not on this engine: build or pull it there (`paddock images list` tells "
        "which ones `paddock images build` makes)"
    )


class Engine(ABC):
    """A container engine that runs this instance's sandboxes."""

    @abstractmethod
    async def info(self) -> EngineInfo:
        """Version and the facts that decide whether sandboxes can be confined."""

    @abstractmethod
    async def image(self, name: str) -> Image | None:
        """The image of that name, or None when this engine has none."""

    @abstractmethod
    async def kernel(self, image: str, runtime: str | None) -> SandboxKernel:
        """What a sandbox of that image and runtime (None: the default) has to confine with.

        It is looked at in a container, which is removed again.
        """

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> str:
        """Creates and starts the sandbox's container and returns its id.

        Nothing is left behind when it fails.
        """

    @abstractmethod
    async def inspect(self, container_id: str) -> Container | None:
        """The container with its limits, or None when it is gone."""

    @abstractmethod
    async def list(self) -> list[Container]:
        """Every container labelled with this instance, in any state."""

    @abstractmethod
    async def pause(self, container_id: str) -> None:
        """Freezes every process in it."""

    @abstractmethod
    async def resume(self, container_id: str) -> None:
        """Thaws a paused container."""

    @abstractmethod
    async def remove(self, container_id: str) -> None:
        """Kills and removes the container, paused or not."""

    @abstractmethod
    async def logs(self, container_id: str) -> str:
        """The end of what its first process printed: why an agent died."""

    @abstractmethod
    async def ensure_open_network(self, image: str) -> OpenNetwork:
        """The bridge for sandboxes with network access, made when missing.

        Destinations on the host and link-local addresses are dropped for it; `image`
        is the image whose iptables install the rules. Raises: EngineUnavailableError
        when the rules can't be installed: the network is then not to be used.
        """

    @abstractmethod
    async def close_names(self, container_id: str, image: str) -> None:
        """Takes the engine's own name server, which names neighbours, from a sandbox on it.

        Raises: EngineUnavailableError: the sandbox is not to be used then.
        """

    @abstractmethod
    async def hold_device(
        self, image: str, device: str, rates: Rates, container_id: str | None = None
    ) -> None:
        """Holds all use of a block device, `major:minor`, to the disk's rates, or lifts them.

        For control groups of version 1, where the container's own do not hold for what the
        kernel writes back for it. Raises: EngineUnavailableError.
        """

    @abstractmethod
    async def hold_link(self, image: str, container_id: str, rates: Rates) -> None:
        """Holds a running sandbox on the open network to the network's rates.

        Raises: EngineUnavailableError: the sandbox is not to be used then.
        """

    @abstractmethod
    async def try_link(self, image: str) -> None:
        """Raises: EngineUnavailableError where the kernel can't hold a network to a rate."""

    @abstractmethod
    async def remove_open_network(self, image: str) -> None:
        """Removes that bridge and its rules, where no container uses it."""

    @abstractmethod
    def events(self) -> AsyncGenerator[EngineEvent, None]:
        """Events of this instance's containers; reconnects for ever, see `resync`."""

    @abstractmethod
    async def close(self) -> None:
        """Releases the connection and its threads."""
