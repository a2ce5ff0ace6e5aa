"""The operations that Paddock needs from a container engine, and nothing more.

Every call has a time limit and raises `EngineUnavailableError` if the engine refuses, fails or does
not answer. Methods that remove something succeed if it is already gone.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.image_names import how_to_get
from sandbox_agent.decide.facilities import Kernel

LABEL_INSTANCE = "paddock.instance"
LABEL_SESSION = "paddock.session"
LABEL_PROTOCOL = "paddock.protocol"
LABEL_IMAGE = "paddock.image"
LABEL_LINK = "paddock.link"  # this process has linked it to the open network
LABEL_INPUTS = "paddock.inputs"


class ContainerState(StrEnum):
    """A container's state as the engine reports it."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"


@dataclass(frozen=True, slots=True)
class Bind:
    """A host path that is mounted in the sandbox."""

    source: str
    target: str
    read_only: bool
    # Whether later mounts on it appear in the sandbox, too; it must be a shared mount then.
    follows: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one sandbox: `cpus` in cores, the rest in bytes and processes."""

    cpus: float
    memory_bytes: int
    pids: int
    tmp_bytes: int
    shm_bytes: int  # 0: no /dev/shm and no /dev/mqueue


@dataclass(frozen=True, slots=True)
class Rates:
    """The highest transfer rates of one sandbox, in bytes per second; None means no limit."""

    disk_read: int | None = None
    disk_write: int | None = None
    network_receive: int | None = None
    network_send: int | None = None

    @property
    def disk(self) -> bool:
        """Whether the workspace's disk has a rate limit."""
        return self.disk_read is not None or self.disk_write is not None

    @property
    def network(self) -> bool:
        """Whether the network has a rate limit."""
        return self.network_receive is not None or self.network_send is not None


NO_RATES = Rates()


@dataclass(frozen=True, slots=True)
class MountedAgent:
    """The agent of a container: the host's directory, and the words that start it.

    `unset` are variables that the image would give to it, and `hidden` the image's own volumes.
    """

    directory: str
    command: tuple[str, ...]
    unset: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """A sandbox's container, as the session's level requires it."""

    name: str
    image: str
    labels: dict[str, str]
    binds: tuple[Bind, ...]
    limits: Limits
    tmp_exec: bool
    network: str | None  # a network's name; None: no network at all
    agent: MountedAgent
    runtime: str | None = None  # None: the engine's default
    rates: Rates = NO_RATES
    disk: str | None = None  # the workspace's device, a path in /dev, to which its rates apply
    namespaces: bool = False  # the agent may make and enter user namespaces


@dataclass(frozen=True, slots=True)
class OpenNetwork:
    """The bridge for sandboxes with network access, and its name servers' IPv4 addresses."""

    name: str
    resolvers: tuple[str, ...]
    own_links: bool = False  # this process can link sandboxes to it, not only the engine


@dataclass(frozen=True, slots=True)
class Container:
    """A container that exists; `exit_code` is None until it has ended."""

    id: str
    name: str
    labels: dict[str, str]
    state: ContainerState
    exit_code: int | None = None
    oom_killed: bool = False
    # The limits that the engine reports: cpus, memory_bytes, pids (absent in lists).
    limits: dict[str, float] = field(default_factory=dict)
    # The host pid of its first process; None if it does not run (and in lists).
    pid: int | None = None
    # The engine's name of its runtime; None in lists.
    runtime: str | None = None


@dataclass(frozen=True, slots=True)
class Image:
    """An image on this engine."""

    id: str
    labels: dict[str, str]
    architecture: str = ""
    size: int = 0  # bytes
    environment: tuple[str, ...] = ()  # NAME=value, as a container of it would have them
    volumes: tuple[str, ...] = ()  # its own mount points
    layers: tuple[str, ...] = ()  # directories of the host, the uppermost first; if it tells

    @property
    def ours(self) -> bool:
        """Whether it is Paddock's, or made from one: earlier ones name their agent's protocol."""
        return LABEL_IMAGE in self.labels or LABEL_PROTOCOL in self.labels


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """The engine's description of itself."""

    version: str
    cgroup_version: str
    rootless: bool
    userns_remap: bool
    # The limits that this engine's kernel can't set: cpus, memory, swap, pids.
    unlimited: tuple[str, ...] = ()
    # The configured runtimes, and the one of containers that name none.
    runtimes: tuple[str, ...] = ()
    default_runtime: str | None = None
    # Whether it confines containers by AppArmor.
    apparmor: bool = False
    # Whether it labels containers for SELinux, which then may use labelled files only.
    selinux: bool = False
    # Whether it is Podman, which answers a part of Docker's API.
    podman: bool = False
    # Whether it puts a system call filter of its own on containers.
    seccomp: bool = True
    # Whether its images are in containerd's store, where their ids are those of manifests.
    containerd_images: bool = False
    # What filters its bridges, as far as it says so: `iptables`, `nftables`, with `+firewalld`.
    firewall: str | None = None


@dataclass(frozen=True, slots=True)
class EngineEvent:
    """An event of one of our containers.

    `action` is `die`, `oom`, `pause`, `unpause` or `resync` (with an empty `container_id`).
    `resync` means that the stream has begun or was interrupted: events may be missing, so list
    again.
    """

    action: str
    container_id: str
    labels: dict[str, str]
    exit_code: int | None = None


def missing_image(name: str) -> EngineUnavailableError:
    """The message for an image that the engine does not have."""
    return EngineUnavailableError(f"image {name} is not on this engine: {how_to_get(name)}")


class Engine(ABC):
    """A container engine that runs this instance's sandboxes."""

    @abstractmethod
    async def info(self) -> EngineInfo:
        """Its version and the facts that decide whether sandboxes can be confined."""

    @abstractmethod
    async def image(self, name: str) -> Image | None:
        """The image with that name; None if this engine does not have it."""

    @abstractmethod
    async def images(self, names: Sequence[str]) -> dict[str, Image]:
        """Those of the named images that this engine has, by the given names."""

    @abstractmethod
    async def kernel(self, image: str, agent: MountedAgent, runtime: str | None) -> Kernel:
        """What a container of that image, started under that runtime (None: the default), finds."""

    @abstractmethod
    async def root_inside(self, image: str, agent: MountedAgent, runtime: str | None) -> str | None:
        """Why commands in such a container can't be root inside; None: they can. Starts one."""

    @abstractmethod
    async def make_agent(self, image: str, target: str, code: Mapping[str, bytes]) -> None:
        """Fills an empty directory of the host with the agent, and that image's interpreter.

        `code` are the agent's files by their names. Raises: EngineUnavailableError; OSError.
        """

    @abstractmethod
    async def look_into(
        self, image: str, agent: MountedAgent, path: str, commands: Sequence[str]
    ) -> dict[str, Any]:
        """What the mounted agent finds in an image: see `sandbox_agent/image/facts.py`.

        `path` is the image's PATH, and `commands` are the programs that are examined.
        """

    @abstractmethod
    async def refuse_links(
        self,
        image: str,
        directories: Sequence[str],
        files: Sequence[str],
        absent: Sequence[str],
    ) -> None:
        """Refuses an image in which one of these paths is another kind of file, or not absent.

        Those of the first two may be missing. Nothing of the image runs. Raises: ValidationError.
        """

    @abstractmethod
    async def create(self, spec: SandboxSpec) -> str:
        """Creates and starts the sandbox's container: its id. A failure leaves nothing behind."""

    @abstractmethod
    async def inspect(self, container_id: str) -> Container | None:
        """The container with its limits; None if it is gone."""

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
        """The end of its first process's output, to show why an agent died."""

    @abstractmethod
    async def ensure_open_network(self, image: str, *, renew: bool = False) -> OpenNetwork:
        """The bridge for sandboxes with network access; makes it if it is missing.

        It drops packets to the host and to link-local addresses, by rules of `image`'s iptables.
        `renew` checks them again even after a recent check. Raises: EngineUnavailableError if they
        can't be installed; it must not be used then.
        """

    @abstractmethod
    async def close_names(self, container_id: str, image: str) -> None:
        """Blocks the engine's own name server, which reveals neighbors, for a sandbox.

        Raises: EngineUnavailableError; the sandbox must not be used then.
        """

    @abstractmethod
    async def hold_device(
        self, image: str, device: str, rates: Rates, container_id: str | None = None
    ) -> None:
        """Applies the disk's rates to all use of a block device, `major:minor`, or lifts them.

        It is for control groups of version 1, where the container's own rates do not apply to the
        data that the kernel writes back for it. Raises: EngineUnavailableError.
        """

    @abstractmethod
    async def hold_link(self, image: str, container_id: str, rates: Rates) -> None:
        """Applies the network's rates to a running sandbox on the open network.

        Raises: EngineUnavailableError; the sandbox must not be used then.
        """

    @abstractmethod
    async def try_link(self, image: str) -> None:
        """Raises EngineUnavailableError if the kernel can't limit a network's rate."""

    @abstractmethod
    async def remove_open_network(self, image: str) -> None:
        """Removes that bridge and its rules unless a container uses it."""

    @abstractmethod
    def events(self) -> AsyncGenerator[EngineEvent, None]:
        """Events of this instance's containers. Reconnects forever, see `resync`."""

    @abstractmethod
    async def close(self) -> None:
        """Releases the connection and its threads."""
