"""What a model reads of a command: the beginning and the end of what it printed."""

from hypothesis import given
from hypothesis import strategies as st

from api.mcp.results import HeadAndTail, refused
from paddock.contract.problem import Problem
from paddock.contract.remedies import REMEDIES


@given(st.lists(st.text(max_size=30)), st.integers(min_value=2, max_value=40))
def test_both_ends_are_kept(pieces: list[str], most: int) -> None:
    kept = HeadAndTail(most)
    for piece in pieces:
        kept.add(piece)
    whole, half = "".join(pieces), most // 2
    if len(whole) <= 2 * half:
        assert (kept.text, kept.is_cut) == (whole, False)
    else:
        cut = len(whole) - 2 * half
        marked = f"{whole[:half]}\n[{cut} characters were cut here]\n{whole[-half:]}"
        assert (kept.is_cut, kept.text) == (True, marked)


def test_a_refusal_says_what_to_do_instead() -> None:
    problem = Problem(
        type="about:blank",
        title="Forbidden",
        status=403,
        code="permission_denied",
        detail="command not allowed",
        request_id="1",
        rule="command-allowlist",
    )
    told = refused(problem)
    assert told.failed
    assert told.raw["content"][0]["text"] == (
        "permission_denied: command not allowed\nrule: command-allowlist\n"
        f"remedy: {REMEDIES['command-allowlist']}"
    )
    assert told.raw["structuredContent"]["remedy"] == REMEDIES["command-allowlist"]
