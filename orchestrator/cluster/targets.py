"""Which node takes a session that leaves another one. Pure."""

from collections.abc import Iterable

from orchestrator.cluster.directory import ClusterNode


def best_target(
    nodes: Iterable[ClusterNode], source: str, level: str, image: str | None
) -> ClusterNode | None:
    """The least loaded node that takes sessions and can have this one; None: there is none.

    The load is the highest of reserved cores, memory and sandboxes against what the node has.
    """
    able = [
        node
        for node in nodes
        if node.takes_sessions
        and node.name != source
        and level in node.report.levels
        and (image is None or image in node.report.images)
        # Cores and memory may be given to more sandboxes than use them at once.
        and node.report.used.sandboxes < node.report.capacity.sandboxes
    ]
    return min(able, key=lambda node: (_load(node), node.name), default=None)


def _load(node: ClusterNode) -> float:
    used, has = node.report.used, node.report.capacity
    pairs = (
        (used.cpus, has.cpus),
        (used.memory_bytes, has.memory_bytes),
        (used.sandboxes, has.sandboxes),
    )
    return max((some / most if most else 1.0 for some, most in pairs), default=1.0)
