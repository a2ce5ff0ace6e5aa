"""The nodes of a cluster; for admins' keys."""

from collections.abc import Callable
from typing import Literal

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, method
from paddock.client.requests import segment
from paddock.client.sse import ServerEvent
from paddock.contract.cluster import Moved, Node, NodeNotice
from paddock.contract.node_report import NodeReport

_NODES = "/api/nodes"
# Large workspaces take minutes.
_MOVE_SECONDS = 3600.0
_MISSING, _BACK = "node.missing", "node.back"


class Nodes(Face[F]):
    """The machines of a cluster. All methods raise `PaddockAPIError`.

    A server that is one machine has none.
    """

    @method
    async def list(self) -> tuple[Node, ...]:
        """All nodes by name, silent ones included."""
        return read_items(Node, await self._api.json("GET", _NODES))

    @method
    async def report(self) -> NodeReport:
        """What the machine that answers says of itself; one machine does so, too."""
        return read(NodeReport, await self._api.json("GET", "/api/node"))

    @method
    async def drain(
        self,
        name: str,
        *,
        move: bool = False,
        wait: int = 0,
        busy: Literal["stay", "end"] = "stay",
    ) -> Node:
        """Has the node get no new sessions; those that it has stay, or move with `move`.

        Busy ones are waited for so many seconds; then they stay, or end. Returns when that is
        done; `drained` of the node says what has become of them. Raises: NotFoundError.
        """
        path = f"{_NODES}/{segment(name)}/drain"
        body = {"move": move, "wait": wait, "busy": busy} if move else {}
        seconds = wait + _MOVE_SECONDS if move else None
        return read(Node, await self._api.json("POST", path, body=body, timeout=seconds))

    @method
    async def undrain(self, name: str) -> Node:
        """Has the node get new sessions again. Raises: NotFoundError."""
        return await self._change(name, "undrain")

    @method
    async def forget(self, name: str) -> Node:
        """Gives up a node that is silent: the ids of its sessions are free again.

        Raises: NotFoundError; ConflictError while the node is alive.
        """
        return await self._change(name, "forget")

    @method
    async def move(self, session_id: str, node: str) -> Moved:
        """Moves an idle session to that node; returns when it is active there.

        It keeps its id, its handle and all that it has. Raises: NotFoundError; ConflictError if
        something runs in it, if it can't be moved, or if the node does not take it.
        """
        path = f"/api/sessions/{segment(session_id)}/move"
        body = {"node": node}
        return read(Moved, await self._api.json("POST", path, body=body, timeout=_MOVE_SECONDS))

    async def _change(self, name: str, change: str) -> Node:
        path = f"{_NODES}/{segment(name)}/{change}"
        return read(Node, await self._api.json("POST", path, body={}))


def heard_of_node(event: ServerEvent, on_node: Callable[[str, bool], None] | None) -> bool:
    """Whether the event is about a node. Then `on_node` gets its name, and whether it is there."""
    if event.name not in (_MISSING, _BACK):
        return False
    if on_node is not None:
        on_node(read(NodeNotice, event.data).node, event.name == _BACK)
    return True
