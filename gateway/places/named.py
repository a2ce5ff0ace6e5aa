"""Requests about what a key has by name: passed to the node that has it."""

from collections import OrderedDict
from urllib.parse import parse_qs

from aiohttp import web

from gateway.members import Member
from gateway.paths import Aim
from gateway.places.asked import Need
from gateway.places.holders import Holders
from gateway.places.making import asking_headers
from orchestrator.ground.errors import ValidationError

_MOST_QUERY = 4096
# Paths whose nodes are remembered.
_MOST_PLACES = 10_000


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
        # The nodes of what stays where it is.
        self._places: OrderedDict[str, str] = OrderedDict()

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
        known = self._places.get(aim.path) if aim.stays else None
        if known is not None and self._holders.has(known):
            self._places.move_to_end(aim.path)
            return self._holders.reached(known)
        path = aim.path if not query else f"{aim.path}?{query}"
        need = Need(path, f"{aim.path.rpartition('/')[2]}"[:128], "name", shared=aim.shared)
        found = await self._holders.one(need, asking_headers(request))
        if found is None:
            return None
        if aim.stays:
            self._places[aim.path] = found
            while len(self._places) > _MOST_PLACES:
                self._places.popitem(last=False)
        return self._holders.reached(found)
