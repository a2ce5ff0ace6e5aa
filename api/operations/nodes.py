"""Nodes of a cluster, which its gateways list and change: one machine has none."""

from api.shape.access import Access, Glass
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from orchestrator.cluster.base import Amounts, NodeReport
from orchestrator.ground.errors import NotFoundError
from orchestrator.operate.moves.draining import Draining
from orchestrator.operate.moves.mover import Mover
from orchestrator.sessions.in_cluster.capacity import NodeCapacity
from paddock.contract.cluster import (
    DrainBody,
    Drained,
    DrainedSession,
    Moved,
    Node,
    NodeAmounts,
    Nodes,
    SessionMoveBody,
)
from paddock.contract.requests import NoBody

_TAG = "Nodes"
_NODES = "/api/nodes"
_NODE = _NODES + "/{name}"
_CHANGED = "The node as it is now."
_ERRORS = ("not_found", "conflict")


@operation(
    "GET",
    _NODES,
    Access.READ_ALL,
    tag=_TAG,
    summary="List the nodes of the cluster",
    answers="The nodes.",
)
async def list_nodes(context: Context) -> Nodes:
    """The machines of the cluster by name: state, lease, what they have and what is used of it.

    A server that is one machine has none, and callers who do not see all sessions are shown none.
    """
    return Nodes(items=[], next=None)


@operation(
    "POST",
    _NODE + "/drain",
    Access.ADMIN,
    tag=_TAG,
    summary="Give a node no new sessions",
    answers=_CHANGED,
    errors=(*_ERRORS, "cluster_unavailable"),
    examples={"drain": {}, "move": {"move": True, "wait": 600, "busy": "end"}},
)
async def drain_node(
    context: Context, draining: Draining, node: NodeCapacity, name: str, body: DrainBody
) -> Node:
    """The node gets no new sessions. Those that it has stay, or move to other nodes with `move`.

    Idle ones move at once, busy ones are waited for; those with children, context packs or volumes
    stay where they are. The answer comes when that is done, and says what has become of them. Asked
    again, it goes on. Only admins' keys may do this.
    """
    if not body.move or name != draining.node:
        raise _unknown(name)
    drained = await context.work.complete(draining.run(body.wait, ends=body.busy == "end"))
    stayed = [DrainedSession(id=each, reason=why) for each, why in drained.stayed.items()]
    return _shown_node(
        node.report(), Drained(moved=drained.moved, ended=drained.ended, stayed=stayed)
    )


@operation(
    "POST",
    _NODE + "/undrain",
    Access.ADMIN,
    tag=_TAG,
    summary="Give a node new sessions again",
    answers=_CHANGED,
    errors=_ERRORS,
)
async def undrain_node(context: Context, name: str, body: NoBody) -> Node:
    """The node gets new sessions again. Only admins' keys may do this."""
    raise _unknown(name)


@operation(
    "POST",
    _NODE + "/forget",
    Access.ADMIN,
    tag=_TAG,
    summary="Give a node up",
    answers=_CHANGED,
    errors=_ERRORS,
)
async def forget_node(context: Context, name: str, body: NoBody) -> Node:
    """Gives up a node that is silent, with all places of sessions on it, whose ids are free again.

    Its sessions can't be reached any more. If the machine returns, it ends them, because the places
    are no longer its own. Only admins' keys may do this.
    """
    raise _unknown(name)


@operation(
    "POST",
    SESSION + "/move",
    Access.ADMIN,
    tag=_TAG,
    summary="Move a session to another node",
    answers="The session's new node, where it is active.",
    errors=(
        *("not_found", "session_terminated", "invalid_transition", "conflict", "busy", "too_large"),
        *("sandbox_unavailable", "engine_unavailable", "capacity_exhausted"),
        *("cluster_unavailable", "node_unavailable"),
    ),
    examples={"node": {"node": "node-2"}},
    glass=Glass.OUTSIDE,
)
async def move_session(context: Context, mover: Mover, body: SessionMoveBody) -> Moved:
    """Moves an idle session with all that it has to another node of the cluster.

    It keeps its id, its handle, its secrets and its budget, and gets a sandbox there at its next
    use; the first event of its record there names the last one here. Nothing may run in it. If
    anything fails, it stays where it is. It continues if the client goes away. Only admins' keys
    may do this.
    """
    session = context.session()
    await mover.move(session, body.node)
    return Moved(id=session.id, node=body.node)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(f"no node {name[:64]}: this server is one machine")


def _shown_node(report: NodeReport, drained: Drained) -> Node:
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
