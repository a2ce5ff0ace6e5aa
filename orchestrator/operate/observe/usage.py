"""What sessions and the host used in the last ten minutes, sampled once for all readers."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.host.node.base import Gauged, Load, Node
from orchestrator.host.node.processes import Usage
from orchestrator.host.workspace.quota import DiskUsage
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.state.session import Session

INTERVAL_SECONDS = 10.0
SAMPLES = 60
# Workspaces grow slowly, and each must be examined by itself, so few samples do. Without a sandbox,
# they do not grow. So many are examined at the same time.
_DISK_EVERY = 3
_DISKS_AT_ONCE = 64
_ROUND_SECONDS = 120.0
_IDLE_MODES = ("idle", "iowait")


class Sample(NamedTuple):
    """One session's use: percent of one core since the sample before, and bytes."""

    cpu_percent: float
    memory_bytes: int
    pids: int


class HostSample(NamedTuple):
    """The host's use: percent of all its cores since the sample before, and bytes."""

    cpu_percent: float
    memory_bytes: int
    disk_bytes: int


@dataclass(slots=True)
class SessionUsage:
    """A session's samples, the latest last; None where no sandbox was visible."""

    samples: deque[Sample | None] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    disk: DiskUsage | None = None


class UsageHistory:
    """Samples all sandboxes and the host, from `start` to `close`.

    `round` counts the samples from 1; the latest was taken at `at`. `load` is the latest load of
    the host; None: not sampled yet.
    """

    def __init__(
        self, node: Node, workspaces: Workspaces, live: Callable[[], Iterable[Session]]
    ) -> None:
        """`live` returns the sessions that have not ended."""
        self._node = node
        self._workspaces = workspaces
        self._live = live
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None
        self._sessions: dict[str, SessionUsage] = {}
        self._before: Gauged | None = None
        self.round = 0
        self.at: datetime | None = None
        self.load: Load | None = None
        self.host: deque[HostSample] = deque(maxlen=SAMPLES)

    def of(self, session: Session) -> SessionUsage:
        """The session's samples; none if it is new."""
        return self._sessions.get(session.key) or SessionUsage()

    def start(self, tasks: Tasks) -> None:
        """Begins to sample."""
        self._task = tasks.start(TaskName.USAGE, self._follow, rounds=self._rounds)

    async def close(self) -> None:
        """Stops sampling."""
        if self._task is not None:
            await self._task.close()

    async def _follow(self) -> None:
        while True:
            with self._rounds.round():
                await self.sample()
            await asyncio.sleep(INTERVAL_SECONDS)

    async def sample(self) -> None:
        """Takes one sample. Raises: OSError, TimeoutError if the host can't be read."""
        live = list(self._live())
        boxes = {one.key: one.sandbox for one in live if one.sandbox is not None}
        gauged = await self._node.gauge(
            {box.container_id: box.first.pid if box.first else None for box in boxes.values()}
        )
        every = self.round % _DISK_EVERY == 0
        disks = await self._disks(
            [one for one in live if (every and one.key in boxes) or one.key not in self._sessions]
        )
        kept: dict[str, SessionUsage] = {}
        for session in live:
            usage = kept[session.key] = self.of(session)
            box = boxes.get(session.key)
            usage.samples.append(
                None if box is None else _of(box.container_id, gauged, self._before)
            )
            usage.disk = disks.get(session.key, usage.disk)
        self.host.append(of_host(gauged, self._before))
        self._sessions, self._before, self.load = kept, gauged, gauged.load
        self.round += 1
        self.at = datetime.now(UTC)

    async def _disks(self, sessions: list[Session]) -> dict[str, DiskUsage | None]:
        found: dict[str, DiskUsage | None] = {}
        for first in range(0, len(sessions), _DISKS_AT_ONCE):
            some = sessions[first : first + _DISKS_AT_ONCE]
            used = await asyncio.gather(*(self._workspaces.usage(one.workspace) for one in some))
            found |= zip((one.key for one in some), used, strict=True)
        return found


def _of(container_id: str, latest: Gauged, before: Gauged | None) -> Sample | None:
    usage = latest.usages.get(container_id)
    if usage is None:
        return None
    earlier: Mapping[str, Usage] = before.usages if before else {}
    known = earlier.get(container_id)
    # A new sandbox may have used its time before this interval.
    used = usage.cpu_seconds - known.cpu_seconds if known else 0.0
    seconds = latest.at - before.at if before else INTERVAL_SECONDS
    percent = round(max(0.0, used) / max(seconds, 1.0) * 100, 1)
    return Sample(percent, usage.memory_bytes, usage.pids)


def of_host(latest: Gauged, before: Gauged | None) -> HostSample:
    """The host's use between two samples; the first sample counts from its boot."""
    load, earlier = latest.load, before.load.cpu_seconds if before else {}
    spent = {
        mode: max(0.0, used - earlier.get(mode, 0.0)) for mode, used in load.cpu_seconds.items()
    }
    total = sum(spent.values())
    idle = sum(spent.get(mode, 0.0) for mode in _IDLE_MODES)
    return HostSample(
        round((total - idle) / total * 100, 1) if total else 0.0,
        load.memory_bytes - load.free_memory_bytes,
        load.disk_bytes - load.free_disk_bytes,
    )
