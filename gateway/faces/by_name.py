"""Merges lists whose order and positions are the same on all nodes, by names or keys. No I/O.

One position is for all nodes: what comes after the last item that was taken. So nothing is kept of
single nodes, and a page has no item before one that a node has not shown yet.
"""

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from gateway.faces.merging import Item

# What items are sorted by; texts are compared as their characters' numbers are, as nodes do.
Key = tuple[str, ...]
# An item's key. Raises: KeyError, TypeError.
KeyOf = Callable[[Item], Key]


class NamePage(NamedTuple):
    """A node's page in its order, and the last key that it covers; None: the node has no more."""

    items: Sequence[tuple[Key, Item]]
    until: Key | None


class MergedNames(NamedTuple):
    """Items, and the key after which the next page begins; None: there is none."""

    items: list[Item]
    next: Key | None


def is_in_order(keys: Sequence[Key], after: Key | None) -> bool:
    """Whether a node's page begins after that key and goes on in order, each key once."""
    before = () if after is None else (after,)
    return all(first < second for first, second in pairwise((*before, *keys)))


def merged_names(pages: Mapping[str, NamePage], most: int) -> MergedNames:
    """The first items of all pages, at most `most`, except that equal keys stay together.

    Several nodes may have something of the same name. A page that can't have all of these is ended
    before them, unless it would have nothing else.
    """
    ends = [page.until for page in pages.values() if page.until is not None]
    horizon = min(ends, default=None)
    offers = heapq.merge(*(page.items for _, page in sorted(pages.items())), key=_key)
    taken: list[tuple[Key, Item]] = []
    begin = 0
    for key, item in offers:
        if horizon is not None and key > horizon:
            break
        is_same = bool(taken) and taken[-1][0] == key
        if len(taken) >= most and not (is_same and begin == 0):
            end = begin if is_same else len(taken)
            return MergedNames([each for _, each in taken[:end]], taken[end - 1][0])
        if not is_same:
            begin = len(taken)
        taken.append((key, item))
    return MergedNames([each for _, each in taken], horizon)


def _key(offer: tuple[Key, Item]) -> Key:
    return offer[0]
