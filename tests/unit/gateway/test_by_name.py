"""Lists by name, merged: all items, in order, each once, whatever the nodes' pages are."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from gateway.faces.by_name import Key, NamePage, is_in_order, merged_names
from gateway.faces.named_lists import ARCHIVES, SNAPSHOTS, is_name_page

NAMES = st.sets(st.text("abc", min_size=1, max_size=2), max_size=8)
NODES = st.dictionaries(st.sampled_from("xyz"), NAMES, max_size=3)


def _node_page(names: set[str], after: Key | None, limit: int) -> NamePage:
    """As a node answers: a full page always names a next one."""
    keys = sorted((name,) for name in names if after is None or (name,) > after)[:limit]
    items = [(key, {"name": key[0]}) for key in keys]
    return NamePage(items, keys[-1] if len(keys) == limit else None)


@given(NODES, st.integers(1, 5), st.integers(1, 5))
def test_all_pages_are_one_list(nodes: dict[str, set[str]], most: int, shorter: int) -> None:
    """`shorter` is the page of a node that could not answer with a whole one."""
    found: list[str] = []
    after: Key | None = None
    for _ in range(100):
        pages = {
            node: _node_page(names, after, min(most, shorter) if node == "x" else most)
            for node, names in nodes.items()
        }
        page = merged_names(pages, most)
        names = [item["name"] for item in page.items]
        # Only equal names can make a page longer, and nothing else is on it then.
        assert len(names) <= most or len(set(names)) == 1
        found += names
        if page.next is None:
            break
        assert after is None or page.next > after
        after = page.next
    expected = sorted(name for names in nodes.values() for name in names)
    assert found == expected
    assert after is None or all(len([*group]) <= 3 for _, group in groupby(found))


def test_a_page_in_disorder_is_none() -> None:
    assert is_in_order([("a",), ("b",)], None)
    assert not is_in_order([("b",), ("a",)], None)
    assert not is_in_order([("a",), ("a",)], None)
    assert not is_in_order([("a",)], ("a",))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(("key", "name", "session_key")), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.fixed_dictionaries({"items": JSON, "next": JSON}), st.none() | st.just(("a", "b")))
def test_whatever_a_node_sends_is_a_page_or_none(answer: dict[str, object], after: Key) -> None:
    for listed in (SNAPSHOTS, ARCHIVES):
        assert is_name_page(listed, after, answer) in (True, False)


def test_a_page_leads_on_behind_its_items() -> None:
    items = [{"key": "ci", "name": "b"}]
    for following, expected in (("ci/b", True), ("ci/c", True), ("ci/a", False), (None, True)):
        assert is_name_page(SNAPSHOTS, None, {"items": items, "next": following}) is expected
    # A page without items that does not get on would keep a client for good.
    assert not is_name_page(SNAPSHOTS, ("ci", "b"), {"items": [], "next": "ci/a"})
