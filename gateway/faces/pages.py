"""Lists that each node has a part of: approvals, and what a search of the record finds."""

from collections.abc import Callable
from typing import NamedTuple

from gateway.faces.asking import Answer, Asking, Query
from gateway.faces.merging import END, NodePage, Sorting, merged
from gateway.faces.peers import Headers, Peers
from gateway.faces.positions import Position, Positions, Series
from gateway.faces.sessions import ListPage

_MOST_NUMBER = 2**64


class Listed(NamedTuple):
    """A list: where nodes have it, how it is sorted, and how a node is told where to continue."""

    path: str
    series: Series
    sorting: Sorting
    cursor: Callable[[int], str]
    # Numbers of the answer that are added up.
    counts: tuple[str, ...] = ()


def _approval_number(item: Answer) -> int:
    return int(item["id"].removeprefix("apr-"), 16)


SEARCH = Listed(
    "/api/audit", Series.SEARCH, Sorting("time", lambda item: int(item["id"])), str, ("archived",)
)
APPROVALS = Listed(
    "/api/approvals",
    Series.APPROVALS,
    Sorting("requested_at", _approval_number),
    lambda number: f"apr-{number:016x}",
)


class MergedList:
    """Pages of such a list over all nodes."""

    def __init__(self, listed: Listed, cluster: str, peers: Peers, asking: Asking) -> None:
        self._listed = listed
        self._positions = Positions(cluster, listed.series)
        self._peers = peers
        self._asking = asking

    async def page(
        self, cursor: str | None, limit: int, given: Query, headers: Headers
    ) -> ListPage:
        """A page, newest first. A node that did not answer has its part on the next page.

        `given` are the parameters as they were sent. Raises: ValidationError, RefusedError.
        """
        position = Position() if cursor is None else self._positions.read(cursor, "cursor")
        before = position.of_nodes
        peers = [peer for peer in self._peers() if before.get(peer.name) != END]
        passed = {name: text for name, text in given.items() if name not in ("cursor", "limit")}

        def query(node: str, most: int) -> Query:
            where = {"cursor": self._listed.cursor(before[node])} if node in before else {}
            return {**passed, **where, "limit": str(most)}

        asked = await self._asking.pages(
            peers, self._listed.path, query, headers, self._is_page, limit
        )
        pages = {name: self._page(answer) for name, answer in asked.answers.items()}
        found = merged(pages, before, self._listed.sorting, limit)
        ended = all(found.positions.get(peer.name) == END for peer in self._peers())
        following = None if ended else self._positions.write(Position(found.positions))
        counts = {
            name: sum(answer[name] for answer in asked.answers.values())
            for name in self._listed.counts
        }
        return ListPage([item for _, item in found.items], following, asked.missing, counts)

    def _page(self, answer: Answer) -> NodePage:
        items, following = answer["items"], answer["next"]
        if following is None:
            return NodePage(items, END)
        if items and self._listed.series is Series.APPROVALS:
            return NodePage(items, self._listed.sorting.number(items[-1]))
        return NodePage(items, int(following))

    def _is_page(self, answer: Answer) -> bool:
        """Whether the answer is a page, whose items have what they are sorted by."""
        try:
            sorting = self._listed.sorting
            numbers = [sorting.number(item) for item in answer["items"]]
            times = [item[sorting.by] for item in answer["items"]]
            counts = [answer[name] for name in self._listed.counts]
            following = 1 if answer["next"] is None else int(answer["next"])
        except (KeyError, TypeError, ValueError, AttributeError):
            return False
        return (
            all(END < number < _MOST_NUMBER for number in (*numbers, following))
            and all(isinstance(time, str) for time in times)
            and all(type(count) is int for count in counts)
        )
