"""The host on which the control plane itself runs."""

import asyncio
import socket
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from orchestrator.ground.threads import Threads
from orchestrator.host.engine.base import Bind, Engine
from orchestrator.host.node import container_freeze
from orchestrator.host.node.base import Gauged, Load, Look, Resources
from orchestrator.host.node.container_kill import FirstProcess, first_process, is_there, kill_all
from orchestrator.host.node.control_groups import HostPaths, this_host
from orchestrator.host.node.host import LocalHost
from orchestrator.host.node.mount_flags import flags_of, restore
from orchestrator.host.node.processes import Earlier, measure
from orchestrator.host.node.requirements import Facts
from orchestrator.host.node.resources import gauge, load, resources
from orchestrator.host.node.sockets import (
    listening,
    listening_for_egress,
    listening_for_ports,
    listening_for_questions,
)
from orchestrator.host.workspace.storage import Storage
from orchestrator.settings.settings import Settings

# The time limit for a thread to become free.
_MEASURE_SECONDS = 0.8
# A call that takes longer hangs in the kernel and is abandoned.
_KILL_SECONDS = 5.0
_FREEZE_SECONDS = 0.5
_RESOURCE_SECONDS = 5.0
_LOOK_SECONDS = 5.0
_GAUGE_SECONDS = 5.0
_FLAGS_SECONDS = 30.0
# Concurrent calls of each kind.
_MOST_MEASURES = 8
_MOST_KILLS = 16
_MOST_RESOURCES = 4
_MOST_LOOKS = 8
_MOST_FLAGS = 4


class LocalNode:
    """`Node` for this host. The code that opens it closes it; the engine belongs to its caller."""

    def __init__(self, state_dir: Path, engine: Engine, storage: Storage) -> None:
        self.engine = engine
        self.storage = storage
        self._state_dir = state_dir
        self._host = LocalHost(state_dir, storage.choice)
        self.kernel = self._host.kernel
        self._paths = this_host()
        self._measures = Threads("the processes of sandboxes", _MOST_MEASURES)
        self._gauges = Threads("what all sandboxes use", 1)
        self._looks = Threads("first processes of sandboxes", _MOST_LOOKS)
        self._kills = Threads("processes that are killed", _MOST_KILLS)
        self._flags = Threads("flags of mounts in sandboxes", _MOST_FLAGS)
        self._resources = Threads("memory and disk of the host", _MOST_RESOURCES)

    @classmethod
    async def open(cls, settings: Settings, engine: Engine) -> Self:
        """Raises: ConfigError, StorageError."""
        storage = await Storage.open(settings)
        self = cls(settings.state_dir, engine, storage)
        try:
            await self.facts()  # checked now instead of at the first session's creation
        except BaseException:
            await self.close()
            raise
        return self

    async def facts(self) -> Facts:
        """See `Host`."""
        return await self._host.facts()

    async def resources(self) -> Resources:
        """See `Node`."""
        return await self._resources.call(partial(resources, self._state_dir), _RESOURCE_SECONDS)

    def load(self) -> Load:
        """See `Node`."""
        return load(self._state_dir)

    def listen(self, run_dir: Path) -> socket.socket:
        """See `Node`."""
        return listening(run_dir)

    def listen_for_egress(self, directory: Path) -> socket.socket:
        """See `Node`."""
        return listening_for_egress(directory)

    def listen_for_ports(self, directory: Path) -> socket.socket:
        """See `Node`."""
        return listening_for_ports(directory)

    def listen_for_questions(self, directory: Path, uid: int) -> socket.socket:
        """See `Node`."""
        return listening_for_questions(directory, uid)

    async def keep_flags(self, first: FirstProcess | None, binds: Sequence[Bind]) -> dict[str, int]:
        """See `Node`."""

        def keep() -> dict[str, int]:
            flags = flags_of(binds)
            if first is not None:
                namespace = f"{self._paths.proc}/{first.pid}/ns/mnt"
                restore(namespace, flags, partial(is_there, first, self._paths))
            return flags

        return await self._flags.call(keep, _FLAGS_SECONDS)

    async def first_process(self, container_id: str, pid: int) -> FirstProcess | None:
        """See `Node`."""
        return await self._looks.call(
            partial(first_process, container_id, pid, self._paths), _LOOK_SECONDS
        )

    async def measure(
        self, container_id: str, first: FirstProcess | None, earlier: Earlier
    ) -> Look:
        """See `Node`."""
        pid = None if first is None else first.pid
        look = partial(_look, container_id, pid, earlier, self._paths)
        return await asyncio.shield(await self._measures.begin(look, _MEASURE_SECONDS))

    async def gauge(self, containers: Mapping[str, int | None]) -> Gauged:
        """See `Node`."""
        look = partial(gauge, dict(containers), self._state_dir, self._paths)
        return await self._gauges.call(look, _GAUGE_SECONDS)

    async def freeze(self, container_id: str, first: FirstProcess | None) -> bool:
        """See `Node`."""
        freeze = partial(container_freeze.freeze, container_id, first, self._paths, _FREEZE_SECONDS)
        return await self._kills.call(freeze, _KILL_SECONDS)

    async def thaw(self, container_id: str, first: FirstProcess | None) -> bool:
        """See `Node`."""
        thaw = partial(container_freeze.thaw, container_id, first, self._paths)
        return await self._kills.call(thaw, _KILL_SECONDS)

    async def end(self, container_id: str, first: FirstProcess | None) -> None:
        """See `Node`."""

        def end() -> None:
            kill_all(container_id, first, self._paths)
            # What is frozen dies once it continues, before it does anything.
            container_freeze.thaw(container_id, first, self._paths)

        await self._kills.call(end, _KILL_SECONDS)

    async def kill(
        self, container_id: str, first: FirstProcess | None, *, spare_first: bool = False
    ) -> int:
        """See `Node`."""
        kill = partial(kill_all, container_id, first, self._paths, spare_first=spare_first)
        return await self._kills.call(kill, _KILL_SECONDS)

    async def close(self) -> None:
        """Ends its storage's background work; workspaces stay as they are."""
        await self.storage.close()


def _look(container_id: str, pid: int | None, earlier: Earlier, host: HostPaths) -> Look:
    """Blocks. The returned time is that of its thread."""
    began = time.thread_time()
    return Look(measure(container_id, pid, earlier, host), time.thread_time() - began)
