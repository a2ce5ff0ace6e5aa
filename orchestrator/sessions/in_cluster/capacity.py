"""What this node has, and what of it its sessions and their creations take. No I/O in a report."""

import hashlib
import platform
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version

from orchestrator.cluster.base import Amounts, Membership, NodeReport
from orchestrator.ground.fair_queue import FairQueue
from orchestrator.host.node.base import Load
from orchestrator.host.node.requirements import Facts, unmet
from orchestrator.rules.policy.levels import ROOT, Level, Levels
from orchestrator.sandbox.sandboxes.listed_images import ListedImages
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.settings.settings import Settings
from orchestrator.state.registry import Registry

_SERVER = "paddock"


class NodeCapacity:
    """The reports of this node."""

    def __init__(
        self,
        settings: Settings,
        membership: Membership,
        load: Load,
        facts: Facts,
        levels: Levels,
        images: ListedImages,
        sessions: Registry,
        slots: FairQueue,
        pool: WarmPool,
    ) -> None:
        """`load` and `facts` are the host's; how busy it was then does not matter."""
        self._settings = settings
        self._membership = membership
        self._capacity = Amounts(
            load.cpus, load.memory_bytes, settings.max_active, settings.max_creating
        )
        self._facts = facts
        self._version = _version()
        self._levels = levels
        self._images = images
        self._registry = sessions
        self._slots = slots
        self._pool = pool

    def report(self) -> NodeReport:
        """The report as of now."""
        settings = self._settings
        sessions = self._registry.of_sandboxes
        used = Amounts(
            sum(each.limits.cpus for each in sessions),
            sum(each.limits.memory_bytes for each in sessions),
            len(sessions),
            self._slots.working + self._slots.waiting,
        )
        return NodeReport(
            name=settings.node or platform.node(),
            epoch=self._membership.epoch,
            state=self._membership.state,
            capacity=self._capacity,
            used=used,
            labels=settings.node_labels,
            images=self._images.names,
            levels=enforceable(self._levels, self._facts),
            waiting=dict(Counter(f"{each.level_name} {each.image}" for each in self._pool.shapes)),
            used_by=dict(Counter(each.owner for each in sessions)),
            url=settings.node_url or "",
            version=self._version,
            rules_digest=digest_of(self._levels),
        )


def _version() -> str:
    """The version of this program; '' where it is not installed."""
    try:
        return version(_SERVER)
    except PackageNotFoundError:
        return ""


def enforceable(levels: Mapping[str, Level], facts: Facts) -> Sequence[str]:
    """The names of the levels that a host with these facts can enforce. Pure."""
    return [
        level.name
        for level in levels.values()
        if not unmet(level.requires, facts, level.rates, root=level.user == ROOT)
    ]


def digest_of(levels: Mapping[str, Level]) -> str:
    """A digest that is the same on two nodes with the same levels. Pure."""
    lines = "".join(f"{name} {levels[name].sha256}\n" for name in sorted(levels))
    return hashlib.sha256(lines.encode()).hexdigest()
