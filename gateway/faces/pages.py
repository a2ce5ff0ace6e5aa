"""Lists that each node has a part of: approvals, and what a search of the record finds."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from gateway.faces.asking import Answer, Asking, Headers, Query
from gateway.faces.merging import END, NodePage, Sorting, merged
from gateway.faces.positions import Position, Positions, Series
from gateway.faces.sessions import ListPage
from gateway.members import Members

_MOST_NUMBER = 2**64


class Listed(NamedTuple):
    """A list: where nodes have it, how it is sorted, and how a node is told where to continue."""

    path: str
    series: Series
    sorting: Sorting
    cursor: Callable[[int], str]
    # Numbers of the answer that are added up.
    counts: tuple[str, ...] = ()


def _event_number(item: Answer) -> int:
    number = item["id"]
    if type(number) is not int:
        raise TypeError
    return number


def _approval_number(item: Answer) -> int:
    return int(item["id"].removeprefix("apr-"), 16)


SEARCH = Listed("/api/audit", Series.SEARCH, Sorting("time", _event_number), str, ("archived",))
APPROVALS = Listed(
    "/api/approvals",
    Series.APPROVALS,
    Sorting("requested_at", _approval_number),
    lambda number: f"apr-{number:016x}",
)


class MergedList:
    """Pages of such a list over all nodes."""

    def __init__(self, listed: Listed, cluster: str, members: Members, asking: Asking) -> None:
        self._listed = listed
        self._positions = Positions(cluster, listed.series)
        self._members = members
        self._asking = asking

    async def page(
        self, cursor: str | None, limit: int, given: Query, headers: Headers
    ) -> ListPage:
        """A page, newest first. A node that did not answer has its part on the next page.

        `given` are the parameters as they were sent. Raises: ValidationError, RefusedError.
        """
        position = Position() if cursor is None else self._positions.read(cursor, "cursor")
        before = position.of_nodes
        members = [each for each in self._members.all if before.get(each.name) != END]
        passed = {name: text for name, text in given.items() if name not in ("cursor", "limit")}

        def query(node: str, most: int) -> Query:
            where = {"cursor": self._listed.cursor(before[node])} if node in before else {}
            return {**passed, **where, "limit": str(most)}

        asked = await self._asking.pages(
            members, self._listed.path, query, headers, partial(is_page, self._listed), limit
        )
        pages = {name: self._page(answer) for name, answer in asked.answers.items()}
        found = merged(pages, before, self._listed.sorting, limit)
        # A node that does not answer must not keep a client that reads all pages for good.
        goes_on = any(found.positions.get(name) != END for name in asked.answers)
        following = None if not goes_on else self._positions.write(Position(found.positions))
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


def is_page(listed: Listed, answer: Answer) -> bool:
    """Whether an answer is a page of the list, whose items have what they are sorted by."""
    try:
        numbers = [listed.sorting.number(item) for item in answer["items"]]
        times = [item[listed.sorting.by] for item in answer["items"]]
        counts = [answer[name] for name in listed.counts]
        following = 1 if answer["next"] is None else int(answer["next"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        return False
    return (
        all(END < number < _MOST_NUMBER for number in (*numbers, following))
        and all(isinstance(time, str) for time in times)
        and all(type(count) is int for count in counts)
    )
