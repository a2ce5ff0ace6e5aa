"""Thousands of nodes, and gateways that put sessions on them by old reports.

Only time and nodes are made up; the choice is `gateway.placed.Placements`, as in a gateway.
"""

import heapq
import random
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from gateway.placed import Placements
from gateway.placement import MOST_ASKED, Wanted
from orchestrator.cluster.base import Amounts, NodeReport
from orchestrator.cluster.directory import Node

_LEVEL = "low"
_CPUS, _MEMORY = 0.5, 256 * 2**20
# As measured on one machine: a start takes 0.15 to 0.25 s, and so many run at once.
_STARTS_AT_ONCE = 4
_START_SECONDS = (0.15, 0.3)
_REPORT_EVERY = 1.0
_ASKING_SECONDS = 0.005


class Scale(NamedTuple):
    """How much there is. `seconds` is the time over which the sessions come, and none ends.

    `places` is how many sandboxes a node holds. The burst is one owner's, in one second.
    """

    nodes: int = 1000
    sessions: int = 100_000
    gateways: int = 8
    burst: int = 5000
    places: int = 115
    seconds: float = 20.0
    report_age: float = 2.0
    owners: int = 200


class Result(NamedTuple):
    """What came of it: parts are 0 to 1, waits in seconds, from the request to its start."""

    refused: float
    wait_p50: float
    wait_p99: float
    owners_most: float
    fullest: float
    emptiest: float


@dataclass(slots=True)
class _Machine:
    """A node: it starts a few sandboxes at once, others wait, and it refuses when it is full."""

    name: str
    places: int
    sandboxes: int = 0
    owners: Counter[str] = field(default_factory=Counter)
    free_at: list[float] = field(default_factory=lambda: [0.0] * _STARTS_AT_ONCE)
    starting: deque[float] = field(default_factory=deque)

    def create(self, now: float, owner: str, chance: random.Random) -> float | None:
        """When the new sandbox begins to start; None: refused."""
        if self.sandboxes >= self.places:
            return None
        self.sandboxes += 1
        self.owners[owner] += 1
        begins = max(now, heapq.heappop(self.free_at))
        ends = begins + chance.uniform(*_START_SECONDS)
        heapq.heappush(self.free_at, ends)
        self.starting.append(ends)
        return begins

    def report(self, now: float) -> NodeReport:
        while self.starting and self.starting[0] <= now:
            self.starting.popleft()
        started = self.sandboxes
        return NodeReport(
            self.name,
            1,
            "ready",
            Amounts(self.places * _CPUS, self.places * _MEMORY, self.places, _STARTS_AT_ONCE * 4),
            Amounts(started * _CPUS, started * _MEMORY, started, len(self.starting)),
            levels=(_LEVEL,),
            used_by=dict(self.owners),
        )


class _Gateway:
    def __init__(self, chance: random.Random) -> None:
        self.now = 0.0
        self.placements = Placements(lambda: self.now, chance)


def simulate(scale: Scale, seed: int = 1) -> Result:
    """Lets the sessions come, at random moments and to random gateways."""
    chance = random.Random(seed)
    machines = {
        name: _Machine(name, round(scale.places * chance.uniform(0.8, 1.2)))
        for name in (f"node-{number}" for number in range(scale.nodes))
    }
    gateways = [_Gateway(chance) for _ in range(scale.gateways)]
    reports: deque[tuple[float, Sequence[NodeReport]]] = deque()
    waits: list[float] = []
    refused = 0
    next_report = 0.0
    for at, owner in _arrivals(scale, chance):
        while next_report <= at:
            reports.append((next_report, [each.report(next_report) for each in machines.values()]))
            _tell(gateways, reports, next_report, scale.report_age)
            next_report += _REPORT_EVERY
        wait = _place(chance.choice(gateways), machines, at, owner, chance)
        if wait is None:
            refused += 1
        else:
            waits.append(wait)
    waits.sort()
    full = sorted(each.sandboxes / each.places for each in machines.values())
    return Result(
        refused / (scale.sessions + scale.burst),
        waits[len(waits) // 2],
        waits[len(waits) * 99 // 100],
        max(each.owners[_BURSTING] for each in machines.values()) / scale.burst,
        full[-1],
        full[0],
    )


_BURSTING = "the owner of the burst"


def _arrivals(scale: Scale, chance: random.Random) -> list[tuple[float, str]]:
    usual = [
        (chance.uniform(0, scale.seconds), f"owner-{chance.randrange(scale.owners)}")
        for _ in range(scale.sessions)
    ]
    middle = scale.seconds / 2
    burst = [(middle + chance.random(), _BURSTING) for _ in range(scale.burst)]
    return sorted(usual + burst)


def _tell(
    gateways: Sequence[_Gateway],
    reports: deque[tuple[float, Sequence[NodeReport]]],
    now: float,
    age: float,
) -> None:
    """All gateways hear what was reported so long ago."""
    while len(reports) > 1 and reports[1][0] <= now - age:
        reports.popleft()
    at, known = reports[0]
    nodes = [Node(report, alive=True, silent_seconds=now - at) for report in known]
    for gateway in gateways:
        gateway.now = now
        gateway.placements.reported(nodes)


def _place(
    gateway: _Gateway,
    machines: dict[str, _Machine],
    at: float,
    owner: str,
    chance: random.Random,
) -> float | None:
    """How long the session waits until its sandbox begins to start; None: all have refused it."""
    wanted = Wanted(_LEVEL, owner=owner, cpus=_CPUS, memory_bytes=_MEMORY)
    excluded: list[str] = []
    for asked in range(MOST_ASKED):
        gateway.now = at
        node = gateway.placements.choose(wanted, excluded)
        if node is None:
            return None
        begins = machines[node.name].create(at + asked * _ASKING_SECONDS, owner, chance)
        if begins is not None:
            return begins - at
        gateway.placements.refused(node, wanted)
        excluded.append(node.name)
    return None
