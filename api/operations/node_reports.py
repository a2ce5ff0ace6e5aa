"""What this machine says of itself."""

from api.shape.access import Access
from api.shape.context import Context
from api.shape.operation import operation
from orchestrator.cluster.base import Amounts
from orchestrator.sessions.in_cluster.capacity import NodeCapacity
from paddock.contract.cluster import NodeAmounts
from paddock.contract.node_report import NodeReport


@operation(
    "GET",
    "/api/node",
    Access.ADMIN,
    tag="Nodes",
    summary="Show what the machine that answers has",
    answers="Its report.",
)
async def show_node(context: Context, node: NodeCapacity) -> NodeReport:
    """Its capacity, what of it sessions use, and what waits for them; one machine has it, too."""
    report = node.report()
    return NodeReport(
        name=report.name,
        epoch=report.epoch,
        state=report.state,  # type: ignore[arg-type]
        url=report.url,
        capacity=_amounts(report.capacity),
        used=_amounts(report.used),
        creations=report.used.creating,
        labels=dict(report.labels),
        levels=list(report.levels),
        images=list(report.images),
        waiting=dict(report.waiting),
        used_by=dict(report.used_by),
        version=report.version,
        rules_digest=report.rules_digest,
    )


def _amounts(amounts: Amounts) -> NodeAmounts:
    return NodeAmounts(
        cpus=amounts.cpus, memory_bytes=amounts.memory_bytes, sandboxes=amounts.sandboxes
    )
