"""Pages of several nodes become one: nothing is lost or repeated, and each node's order stays."""

from collections.abc import Mapping, Sequence

from hypothesis import given
from hypothesis import strategies as st

from gateway.faces.merging import END, Item, Merged, NodePage, Sorting, merged

BY_TIME = Sorting("time", lambda item: int(item["id"]))
Lists = dict[str, list[Item]]


def _list(times: Sequence[int]) -> list[Item]:
    """A node's items, newest first: ids descend, and times, too, but for small steps back."""
    return [
        {"id": number, "time": f"2026-03-04T09:{time // 60:02}:{time % 60:02}.000000Z"}
        for number, time in zip(range(len(times), 0, -1), times, strict=True)
    ]


_ordered = st.lists(st.integers(0, 3000), max_size=30).map(sorted).map(lambda times: times[::-1])
_any_order = st.lists(st.integers(0, 3000), max_size=30)
_lists = st.dictionaries(st.sampled_from("abcdef"), _ordered.map(_list), min_size=1)
_unordered = st.dictionaries(st.sampled_from("abcdef"), _any_order.map(_list), min_size=1)
_short = st.fixed_dictionaries({name: st.integers(0, 9) for name in "abcdef"})


def _page(items: Sequence[Item], before: int | None, most: int) -> NodePage:
    """What a node answers: items with lower ids, at most so many."""
    rest = [item for item in items if before is None or item["id"] < before]
    page = rest[:most]
    if len(rest) <= most:
        return NodePage(page, END)
    # A node that has examined enough answers with fewer, or with none.
    return NodePage(page, page[-1]["id"] if page else rest[0]["id"] + 1)


def _pages(lists: Lists, most: int, sizes: Mapping[str, int]) -> list[Merged]:
    """All merged pages; `sizes` says how many items a node's page has, in turn with `most`."""
    before: dict[str, int] = {}
    found: list[Merged] = []
    while not found or any(before.get(node) != END for node in lists):
        assert len(found) < 1000, "it does not end"
        size = sizes if len(found) % 2 else dict.fromkeys(lists, most)
        asked = [node for node in lists if before.get(node) != END]
        pages = {node: _page(lists[node], before.get(node), size[node]) for node in asked}
        found.append(merged(pages, before, BY_TIME, most))
        before = found[-1].positions
    return found


@given(_unordered, st.integers(1, 12), _short)
def test_pages_have_each_item_once_and_each_nodes_order(
    lists: Lists, most: int, sizes: Mapping[str, int]
) -> None:
    found = [pair for page in _pages(lists, most, sizes) for pair in page.items]
    for node, items in lists.items():
        assert [item for name, item in found if name == node] == items
    assert len(found) == sum(map(len, lists.values()))


@given(_lists, st.integers(1, 12), _short)
def test_pages_are_sorted_over_nodes(lists: Lists, most: int, sizes: Mapping[str, int]) -> None:
    found = [item["time"] for page in _pages(lists, most, sizes) for _, item in page.items]
    assert found == sorted(found, reverse=True)


@given(_lists, st.integers(1, 12))
def test_full_pages_of_nodes_make_full_pages(lists: Lists, most: int) -> None:
    *full, last = _pages(lists, most, dict.fromkeys("abcdef", most))
    assert all(len(page.items) == most for page in full)
    assert len(last.items) <= most


def test_a_node_that_has_more_holds_up_what_may_follow_it() -> None:
    """Its next page may have an item that comes before what others have."""
    lists = {"a": _list([50, 40]), "b": _list([60, 45, 30])}
    pages = {"a": NodePage(lists["a"][:1], 2), "b": NodePage(lists["b"], END)}
    found = merged(pages, {}, BY_TIME, 10)
    assert [(node, item["id"]) for node, item in found.items] == [("b", 3), ("a", 2)]
    assert found.positions == {"a": 2, "b": 3}
    # An empty page of a node that has more may be followed by anything.
    empty = merged(pages | {"c": NodePage([], 7)}, {}, BY_TIME, 10)
    assert empty == Merged([], {"c": 7})


def test_a_node_that_did_not_answer_keeps_its_position() -> None:
    pages = {"a": NodePage(_list([50]), END)}
    assert merged(pages, {"b": 812, "c": END}, BY_TIME, 10).positions == {
        "a": END,
        "b": 812,
        "c": END,
    }
