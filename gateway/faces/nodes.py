"""Nodes of the cluster as the API shows them, and what admins change about them."""

from typing import Protocol

from gateway.members import Members
from orchestrator.cluster.base import Amounts
from orchestrator.cluster.directory import Directory
from orchestrator.cluster.directory import Node as KnownNode
from orchestrator.ground import strict_json
from orchestrator.ground.errors import NotFoundError, ValidationError
from orchestrator.settings.requests import validated
from paddock.contract.cluster import DrainBody, Node, NodeAmounts, Nodes


class NodeChanges(Protocol):
    """What the cluster's database changes about nodes.

    Each raises NotFoundError for a node that the cluster has not, and ClusterUnavailableError.
    """

    async def drain(self, name: str) -> None:
        """It gets no new sessions."""

    async def undrain(self, name: str) -> None:
        """It gets new sessions again."""

    async def forget(self, name: str) -> object:
        """It is given up. Raises: ConflictError while its lease lasts."""


class NodeList:
    """Lists and changes nodes, for admins."""

    def __init__(self, directory: Directory, members: Members, changes: NodeChanges) -> None:
        self._directory = directory
        self._members = members
        self._changes = changes

    async def all(self) -> Nodes:
        """All nodes by name. Raises: ClusterUnavailableError."""
        return Nodes(items=[_shown(node) for node in await self._directory.nodes()], next=None)

    async def change(self, name: str, change: str) -> Node:
        """Drains, undrains or forgets a node; returns it as it is then.

        Raises: NotFoundError, ConflictError, ClusterUnavailableError.
        """
        before = await self._named(name)
        match change:
            case "drain":
                await self._changes.drain(name)
            case "undrain":
                await self._changes.undrain(name)
            case "forget":
                await self._changes.forget(name)
        # This gateway follows at once, others within a second.
        await self._members.refresh()
        if change == "forget":
            return before.model_copy(update={"state": "gone", "alive": False})
        return await self._named(name)

    async def _named(self, name: str) -> Node:
        for node in await self._directory.nodes():
            if node.name == name:
                return _shown(node)
        raise NotFoundError(f"the cluster has no node {name[:64]}")


def drain_of(body: bytes) -> DrainBody:
    """What is to happen to the sessions of a node. Raises: ValidationError naming the member."""
    if not body:
        return DrainBody()
    try:
        members = strict_json.parse(body, "the body")
    except strict_json.JsonError as error:
        raise ValidationError(str(error)) from None
    if not isinstance(members, dict):
        raise ValidationError("the body must be a JSON object")
    return validated(DrainBody, members)


def _shown(node: KnownNode) -> Node:
    report = node.report
    return Node.model_validate(
        {
            "name": report.name,
            "state": report.state,
            "alive": node.alive,
            "silent_seconds": round(max(0.0, node.silent_seconds), 1),
            "capacity": _amounts(report.capacity),
            "used": _amounts(report.used),
            "labels": dict(report.labels),
            "levels": list(report.levels),
            "images": list(report.images),
            "version": report.version,
        }
    )


def _amounts(amounts: Amounts) -> NodeAmounts:
    return NodeAmounts(
        cpus=round(float(amounts.cpus), 3),
        memory_bytes=amounts.memory_bytes,
        sandboxes=amounts.sandboxes,
    )
