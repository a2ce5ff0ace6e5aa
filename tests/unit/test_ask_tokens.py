"""Tokens that say who asked an agent: only those that its sandbox was given name anybody."""

import base64

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.host.link.ask_tokens import AskedBy, AskTokens

TOKENS = AskTokens()
CALLERS = st.builds(AskedBy, st.text(max_size=200), st.none() | st.text(max_size=200))


@given(st.text(max_size=20), CALLERS)
def test_a_token_names_its_caller_to_its_own_session_only(session: str, caller: AskedBy) -> None:
    token = TOKENS.token(session, caller)
    assert TOKENS.read(session, token) == caller
    assert TOKENS.read(session + "x", token) is None
    assert AskTokens().read(session, token) is None


@given(CALLERS, st.data())
def test_a_token_that_was_changed_names_nobody(caller: AskedBy, data: st.DataObject) -> None:
    token = TOKENS.token("box", caller)
    raw = bytearray(base64.b64decode(token))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] ^= data.draw(st.integers(1, 255))
    assert TOKENS.read("box", base64.b64encode(raw).decode()) is None


@given(st.none() | st.integers() | st.text() | st.lists(st.text()))
def test_anything_else_names_nobody(token: object) -> None:
    assert TOKENS.read("box", token) is None


def test_a_token_is_as_long_as_its_caller_and_no_longer_one_is_read() -> None:
    assert TOKENS.read("box", "A" * 5000) is None
    assert len(TOKENS.token("box", AskedBy("key", "e2b POST /files"))) < 200
