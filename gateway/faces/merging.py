"""Merges pages of several nodes into one page, in the order that each node's page has. No I/O."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# A node that has nothing after its position.
END = 0

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sorting:
    """How items are sorted, and where an item is in its node's list.

    `by` is the member by which they are sorted, the greatest first: times in one form. `number` is
    the position with which its node continues after it.
    """

    by: str
    number: Callable[[Item], int]


class NodePage(NamedTuple):
    """A node's page: items in their order, and the position of its next page (END: no more)."""

    items: Sequence[Item]
    next: int


class Merged(NamedTuple):
    """Items with the names of their nodes, and where each node continues (END: it has no more)."""

    items: list[tuple[str, Item]]
    positions: dict[str, int]


class _Offer(NamedTuple):
    key: str
    node: str
    item: Item | None


def merged(
    pages: Mapping[str, NodePage], before: Mapping[str, int], sorting: Sorting, most: int
) -> Merged:
    """The first items of all pages, at most `most`, each node's in the order in which it sent them.

    It stops early where a node's page ends but its list does not, because what follows there may
    come before what others have. `before` are the positions at which the pages begin; a node
    without one continues from its beginning, and stays without one until an item of it was taken.
    """
    items: list[tuple[str, Item]] = []
    taken = dict.fromkeys(pages, 0)
    offers = (_offers(node, page, sorting) for node, page in pages.items())
    for _, node, item in heapq.merge(*offers, key=lambda offer: offer.key, reverse=True):
        if item is None or len(items) == most:
            break
        items.append((node, item))
        taken[node] += 1
    positions = dict(before)
    for node, page in pages.items():
        number = taken[node]
        if number == len(page.items):
            positions[node] = page.next
        elif number:
            positions[node] = sorting.number(page.items[number - 1])
    return Merged(items, positions)


def _offers(node: str, page: NodePage, sorting: Sorting) -> Iterator[_Offer]:
    """The page's items, and a last offer without one if the node has more."""
    # Greater than every time: an empty page that is not the last one holds up everything.
    last = "~"
    for item in page.items:
        last = item[sorting.by]
        yield _Offer(last, node, item)
    if page.next != END:
        yield _Offer(last, node, None)
