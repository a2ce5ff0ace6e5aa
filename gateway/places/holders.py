"""Which nodes have what a key has by name: each node is asked, as the caller.

Only the nodes know the names of volumes and snapshots. A node decides by the caller's credentials
whether it has one, so nothing is told to who may not see it.
"""

from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import NamedTuple

from gateway.errors import RETRY_SECONDS, unavailable
from gateway.faces.asking import Asking, Headers, RefusedError, ask_whether
from gateway.members import Member, Members
from gateway.places.asked import Need
from orchestrator.ground.errors import ConflictError, NodeUnavailableError, ValidationError


class Held(NamedTuple):
    """The names of the nodes that have it, and of those that did not answer."""

    nodes: Sequence[str]
    missing: Sequence[str]


class Holders:
    """Finds the nodes that have something."""

    def __init__(self, members: Members, asking: Asking) -> None:
        self._members = members
        self._asking = asking

    async def of(self, path: str, headers: Headers) -> Held:
        """The nodes that answer a GET of that path. Raises: RefusedError for all but 404."""

        async def asked(member: Member) -> dict[str, object]:
            return await ask_whether(member, path, headers)

        found = await self._asking.each(list(self._members.all), asked)
        for refusal in found.refusals:
            if refusal.status != HTTPStatus.NOT_FOUND:
                raise RefusedError(refusal)
        return Held(sorted(found.answers), found.missing)

    def has(self, name: str) -> bool:
        """Whether the cluster has a node of that name, be it away."""
        return self._members.named(name) is not None

    def reached(self, name: str) -> Member:
        """The node of that name. Raises: ValidationError, NodeUnavailableError."""
        member = self._members.named(name)
        if member is None:
            raise ValidationError(f"the cluster has no node {name[:64]}", field="node")
        if not member.alive:
            raise unavailable(name)
        return member

    async def one(self, need: Need, headers: Headers) -> str | None:
        """The node that has it; None: no node has it.

        Raises: as `all_of`, and ConflictError if several nodes have it, unless it is shared.
        """
        found = await self._of(need, headers)
        return None if found is None else min(found)

    async def all_of(self, needs: Iterable[Need], headers: Headers) -> frozenset[str] | None:
        """The nodes that have all of this; None: any node.

        What no node has does not count, because a node says so in its own words. Raises:
        NodeUnavailableError if it may be on a node that does not answer, RefusedError;
        ConflictError if no node has all of it, or several nodes have different things of a name.
        """
        found: frozenset[str] | None = None
        for need in needs:
            nodes = await self._of(need, headers)
            if nodes is None:
                continue
            found = nodes if found is None else found & nodes
            if not found:
                raise ConflictError(
                    f"{need.field}: {need.name} is on the node {min(nodes)}, and the others that "
                    "it names are elsewhere: a session has what is on one node",
                    field=need.field,
                )
        return found

    async def _of(self, need: Need, headers: Headers) -> frozenset[str] | None:
        held = await self.of(need.path, headers)
        if not held.nodes:
            if held.missing:
                raise NodeUnavailableError(
                    f"the node {held.missing[0]} does not answer, and no other has {need.name}: "
                    "try again",
                    node=held.missing[0],
                    retry_after=RETRY_SECONDS,
                )
            return None
        if len(held.nodes) > 1 and not need.shared:
            raise ConflictError(
                f"several nodes have something of this name, {need.name}: "
                f"{', '.join(held.nodes[:3])}; name one with `node`, or a snapshot by its id",
                field=need.field,
            )
        return frozenset(held.nodes)
