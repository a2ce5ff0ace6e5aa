"""Requests about what a key has by name: passed to the node that has it."""

from urllib.parse import parse_qs

from aiohttp import web

from gateway.members import Member
from gateway.paths import Aim
from gateway.places.asked import Need
from gateway.places.holders import Holders
from gateway.places.making import asking_headers
from orchestrator.ground.errors import ValidationError

_MOST_QUERY = 4096


def node_in(raw_query: str) -> str | None:
    """The node that the query names. Raises: ValidationError if it names several."""
    named = parse_qs(raw_query[:_MOST_QUERY], keep_blank_values=True).get("node", [])
    if len(named) > 1:
        raise ValidationError("node must be given once", field="node")
    return named[0] if named else None


def without_node(raw_path: str) -> str:
    """The target without the parameter, which is a gateway's only."""
    path, mark, query = raw_path.partition("?")
    kept = [each for each in query.split("&") if each.partition("=")[0] != "node"]
    return path + mark + "&".join(kept) if any(kept) else path


class Named:
    """Finds the node of a volume, a snapshot, or a template that a client has built."""

    def __init__(self, holders: Holders) -> None:
        self._holders = holders

    def chosen(self, request: web.Request) -> Member | None:
        """The node that the query names. Raises: ValidationError, NodeUnavailableError."""
        node = node_in(request.rel_url.raw_query_string)
        return None if node is None else self._holders.reached(node)

    async def node_of(self, request: web.Request, aim: Aim) -> Member | None:
        """The node that has it; None: no node has it.

        Raises: ValidationError, NodeUnavailableError, ConflictError, RefusedError.
        """
        query = request.rel_url.raw_query_string
        if (member := self.chosen(request)) is not None:
            return member
        path = aim.path if not query else f"{aim.path}?{query}"
        need = Need(path, f"{aim.path.rpartition('/')[2]}"[:128], "name", shared=aim.shared)
        found = await self._holders.one(need, asking_headers(request))
        return None if found is None else self._holders.reached(found)
