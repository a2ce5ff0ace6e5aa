"""Which node a new session is put on. Pure: the random numbers and all reports are arguments.

The best of three random nodes gets it, and not the best of all: many gateways know the same old
reports, and all would choose the same node.
"""

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.cluster.base import Amounts, NodeReport
from orchestrator.cluster.directory import Node

# As many nodes are compared, and at most as many are asked one after the other.
COMPARED = 3
MOST_ASKED = 3
# What a sandbox that waits for such a session is worth, in parts of a node.
_WAITING_BONUS = 0.2
# What it costs if all of a node's sandboxes are the owner's: a node that fails takes few of them.
_OWNER_WEIGHT = 0.5


@dataclass(frozen=True, slots=True)
class Wanted:
    """A session to be placed. None: any, or not known.

    `labels` must be the node's; `cpus` and `memory_bytes` are what it asks for. `only` are the
    names of the nodes that have its volumes, or what it begins as.
    """

    level: str | None = None
    image: str | None = None
    owner: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    cpus: float | None = None
    memory_bytes: int | None = None
    only: frozenset[str] | None = None

    @property
    def shape(self) -> str:
        """The shape of a waiting sandbox that suits it, as in a node's report."""
        return (self.level or "") if self.image is None else f"{self.level} {self.image}"


@dataclass(slots=True)
class Since:
    """What this gateway has put on a node since the node's report."""

    cpus: float = 0.0
    memory_bytes: int = 0
    sandboxes: int = 0
    by_owner: Counter[str] = field(default_factory=Counter)
    by_shape: Counter[str] = field(default_factory=Counter)


class Against(StrEnum):
    """Why nodes can't have a session, as its client reads it after their number."""

    SILENT = "do not answer"
    CLOSED = "take no new sessions"
    LEVEL = "can't enforce its level"
    IMAGE = "do not have its image"
    LABELS = "have other labels"
    ELSEWHERE = "do not have what it begins with"


def against(node: Node, wanted: Wanted) -> Against | None:
    """Why the session can't be on that node; None: it can."""
    report = node.report
    if not node.alive:
        return Against.SILENT
    if not node.takes_sessions:
        return Against.CLOSED
    if wanted.only is not None and node.name not in wanted.only:
        return Against.ELSEWHERE
    if wanted.level is not None and wanted.level not in report.levels:
        return Against.LEVEL
    if wanted.image is not None and wanted.image not in report.images:
        return Against.IMAGE
    if any(report.labels.get(name) != value for name, value in wanted.labels.items()):
        return Against.LABELS
    return None


def choose(
    nodes: Sequence[Node],
    wanted: Wanted,
    since: Callable[[str], Since],
    excluded: Collection[str],
    chance: random.Random,
) -> Node | None:
    """The best of three random nodes that may have the session; None: there is none left.

    `since` is asked with a node's name. `excluded` have refused already.
    """
    found = _some(nodes, wanted, excluded, chance)
    return min(
        found,
        key=lambda node: score(node.report, wanted, since(node.name)),
        default=None,
    )


def score(report: NodeReport, wanted: Wanted, since: Since) -> float:
    """How full a node is, about 0 to 1; lower is better.

    The plan of the cluster has the numbers, which the simulation in `tests/simulation` confirms.
    """
    capacity, used = report.capacity, report.used
    sandboxes = used.sandboxes + since.sandboxes
    load = max(
        _part(used.cpus + since.cpus, capacity.cpus),
        _part(used.memory_bytes + since.memory_bytes, capacity.memory_bytes),
        _part(sandboxes, capacity.sandboxes),
        _part(used.creating + since.sandboxes, capacity.creating),
    )
    if report.waiting.get(wanted.shape, 0) > since.by_shape[wanted.shape]:
        load -= _WAITING_BONUS
    if wanted.owner is not None:
        theirs = report.used_by.get(wanted.owner, 0) + since.by_owner[wanted.owner]
        load += _OWNER_WEIGHT * _part(theirs, capacity.sandboxes)
    return load


def added(since: Since, report: NodeReport, wanted: Wanted) -> None:
    """Counts a session that is put on the node.

    What it asks for nobody knows before the node does, so it counts as one of the node's own.
    """
    share = _share(report.capacity)
    since.cpus += share.cpus if wanted.cpus is None else wanted.cpus
    since.memory_bytes += share.memory_bytes if wanted.memory_bytes is None else wanted.memory_bytes
    since.sandboxes += 1
    since.by_shape[wanted.shape] += 1
    if wanted.owner is not None:
        since.by_owner[wanted.owner] += 1


def _some(
    nodes: Sequence[Node], wanted: Wanted, excluded: Collection[str], chance: random.Random
) -> list[Node]:
    """Up to three random nodes that may have it.

    Random ones are looked at first, because mostly they will do; only if too few do, all are.
    """
    found: dict[str, Node] = {}
    for _ in range(4 * COMPARED if len(nodes) > 4 * COMPARED else 0):
        node = nodes[chance.randrange(len(nodes))]
        if node.name not in excluded and against(node, wanted) is None:
            found[node.name] = node
            if len(found) == COMPARED:
                return list(found.values())
    able = [node for node in nodes if node.name not in excluded and against(node, wanted) is None]
    return chance.sample(able, min(COMPARED, len(able)))


def _share(capacity: Amounts) -> Amounts:
    """What one sandbox has of a node that is full of equal ones."""
    most = max(1, capacity.sandboxes)
    return Amounts(capacity.cpus / most, capacity.memory_bytes // most, 1)


def _part(amount: float, of: float) -> float:
    """The part; without a capacity, a node is full as soon as it is used."""
    return amount / of if of > 0 else float(amount > 0)
