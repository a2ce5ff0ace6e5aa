"""Names of tools that MCP clients and models take."""

import re

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.rules.tools.offered_names import offered_names

_PART = st.from_regex(r"\A[A-Za-z0-9_-]{1,64}\Z")
_NAMES = st.lists(_PART | st.builds("{}.{}".format, _PART, _PART), max_size=8)
_CLOSE = st.lists(st.sampled_from(["a.b", "a__b", "a_.b", "a._b", "a", "exec", "a__b_c", "x" * 64]))


@given(_NAMES | _CLOSE, st.sampled_from([(), ("exec", "a__b")]))
def test_each_tool_has_a_name_of_its_own(names: list[str], taken: tuple[str, ...]) -> None:
    found = offered_names(names, taken)
    assert list(found) == list(dict.fromkeys(names))
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each) for each in found.values())
    assert len({*found.values(), *taken}) == len(found) + len(taken)
    # Whoever lists them, and in which order.
    assert offered_names(reversed(names), taken) == found


def test_names_stay_what_they_are() -> None:
    long = f"{'tool' * 16}.{'command' * 9}"
    found = offered_names(["psql.select_query", "fetch", "a.b", "a__b", long])
    shortened = found.pop(long)
    assert found["psql.select_query"] == "psql__select_query"
    assert (found["fetch"], found["a__b"]) == ("fetch", "a__b")
    assert re.fullmatch(r"a__b_[0-9a-f]{8}", found["a.b"])
    assert len(shortened) == 64
    assert shortened.startswith("tooltool")
