"""A host of which everything is told, for unit tests of what is on it."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from orchestrator.host.engine.base import Bind, Engine
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.host.node.base import Gauged, Load, Look, Node, Resources
from orchestrator.host.node.container_kill import FirstProcess
from orchestrator.host.node.processes import Earlier, Measured, Usage
from orchestrator.host.node.requirements import Facts
from orchestrator.host.node.sockets import (
    listening,
    listening_for_egress,
    listening_for_ports,
    listening_for_questions,
)
from orchestrator.host.workspace.storage import Storage
from sandbox_agent.decide.facilities import Kernel
from tests.support.kernels import FULL_KERNEL

GIB = 1024**3


class FakeNode(Node):
    """Offers everything, and has room. `killed` are containers, and whether the first was spared.

    `shown` are what containers are seen to do; with `hangs` nothing that may block answers.
    """

    def __init__(self, engine: Engine | None = None, storage: Storage | None = None) -> None:
        self._engine = engine or FakeEngine()
        self._storage = storage
        self.offers = Facts(FULL_KERNEL, mounts=True, quota=True, throttle=True)
        self.left = Resources(free_memory_bytes=GIB, free_disk_bytes=GIB)
        self.used = Load({"user": 1.5}, 2, 4 * GIB, GIB, 8 * GIB, GIB)
        self.shown: dict[str, Measured] = {}
        self.killed: list[tuple[str, bool]] = []
        self.hangs = False
        # Whether containers are frozen without the engine.
        self.freezes = False
        self.flags: dict[str, int] = {}
        # What containers use, and the time of the latest look at them.
        self.uses: dict[str, Usage] = {}
        self.seconds = 0.0

    @property
    def engine(self) -> Engine:
        return self._engine

    @property
    def storage(self) -> Storage:
        return cast(Storage, cast(Any, self._storage))

    @property
    def kernel(self) -> Kernel:
        return self.offers.kernel

    async def facts(self) -> Facts:
        return self.offers

    async def resources(self) -> Resources:
        self._answer()
        return self.left

    def load(self) -> Load:
        return self.used

    def listen(self, run_dir: Path) -> socket.socket:
        return listening(run_dir)

    def listen_for_egress(self, directory: Path) -> socket.socket:
        return listening_for_egress(directory)

    def listen_for_questions(self, directory: Path, uid: int) -> socket.socket:
        return listening_for_questions(directory, uid)

    def listen_for_ports(self, directory: Path) -> socket.socket:
        return listening_for_ports(directory)

    async def keep_flags(self, first: FirstProcess | None, binds: Sequence[Bind]) -> dict[str, int]:
        return self.flags

    async def first_process(self, container_id: str, pid: int) -> FirstProcess | None:
        self._answer()
        return FirstProcess(pid, 1, ())

    async def measure(
        self, container_id: str, first: FirstProcess | None, earlier: Earlier
    ) -> Look:
        self._answer()
        found = self.shown.get(container_id)
        return Look(None if found is None else (found, earlier), 0.0)

    async def gauge(self, containers: Mapping[str, int | None]) -> Gauged:
        self._answer()
        self.seconds += 10
        shown = {one: use for one, use in self.uses.items() if one in containers}
        return Gauged(self.seconds, self.used, shown)

    async def freeze(self, container_id: str, first: FirstProcess | None) -> bool:
        self._answer()
        return self.freezes

    async def thaw(self, container_id: str, first: FirstProcess | None) -> bool:
        self._answer()
        return False

    async def end(self, container_id: str, first: FirstProcess | None) -> None:
        self._answer()

    async def kill(
        self, container_id: str, first: FirstProcess | None, *, spare_first: bool = False
    ) -> int:
        self.killed.append((container_id, spare_first))
        self._answer()
        return 1

    def _answer(self) -> None:
        if self.hangs:
            raise TimeoutError
