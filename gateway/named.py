"""Requests about what a key has by name: passed to the node that has it."""

from urllib.parse import parse_qs

from aiohttp import web

from gateway.asked import Need
from gateway.holders import Holders
from gateway.making import asking_headers
from gateway.members import Member
from gateway.paths import Aim
from orchestrator.ground.errors import ValidationError

_MOST_QUERY = 4096


def node_in(raw_query: str) -> str | None:
    """The node that the query names. Raises: ValidationError if it names several."""
    named = parse_qs(raw_query[:_MOST_QUERY], keep_blank_values=True).get("node", [])
    if len(named) > 1:
        raise ValidationError("node must be given once", field="node")
    return named[0] if named else None


class Named:
    """Finds the node of a volume, a snapshot, or a template that a client has built."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders

    async def node_of(self, request: web.Request, aim: Aim) -> Member | None:
        """The node that has it; None: no node has it.

        Raises: ValidationError, NodeUnavailableError, ConflictError, RefusedError.
        """
        query = request.rel_url.raw_query_string
        node = node_in(query)
        if node is not None:
            return self._holders.reached(node)
        path = aim.path if not query else f"{aim.path}?{query}"
        need = Need(path, f"{aim.path.rpartition('/')[2]}"[:128], "name", shared=aim.shared)
        found = await self._holders.one(need, asking_headers(request))
        return None if found is None else self._holders.reached(found)
