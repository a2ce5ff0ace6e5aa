"""Nodes of a cluster, as the API shows them."""

from orchestrator.cluster.base import Amounts, NodeReport
from paddock.contract.cluster import Drained, Node, NodeAmounts


def shown_node(report: NodeReport, drained: Drained) -> Node:
    """A node that shows itself, and what has become of its sessions."""
    return Node.model_validate(
        {
            "name": report.name,
            "state": report.state,
            "alive": True,
            "silent_seconds": 0.0,
            "capacity": _amounts(report.capacity),
            "used": _amounts(report.used),
            "labels": dict(report.labels),
            "levels": list(report.levels),
            "images": list(report.images),
            "version": report.version,
            "drained": drained,
        }
    )


def _amounts(amounts: Amounts) -> NodeAmounts:
    return NodeAmounts(
        cpus=round(float(amounts.cpus), 3),
        memory_bytes=amounts.memory_bytes,
        sandboxes=amounts.sandboxes,
    )
