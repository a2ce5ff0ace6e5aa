"""A session's secrets on both sides: bounded, sealed, and restored after a restart."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import ConflictError, ValidationError
from orchestrator.host.link.held_secrets import HeldSecrets
from orchestrator.host.link.messages import parse_hello
from orchestrator.state.session_secrets import (
    MOST_VALUES,
    SessionSecrets,
    StoredSecrets,
    check_not_stored,
)
from sandbox_agent import server
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.redaction import MARK, Redactor
from sandbox_agent.decide.variables import allowed_secret, refused_variable
from sandbox_agent.run.session_secrets import SessionSecrets as AgentSecrets

TOKEN, OTHER = "tok_2b1f9c07d4e8", "another secret value"
LISTED = ("LANG", "LC_*")


def made(**variables: str) -> SessionSecrets:
    return SessionSecrets(StoredSecrets.new(variables), variables)


def hello(secrets: Any) -> HeldSecrets:
    params = {"boot_id": "0" * 16, "configured": True, "landlock_abi": 7}
    lists: dict[str, list[str]] = {"running": [], "finished": [], "terminals": []}
    wire = json.loads(json.dumps({**params, **lists, "secrets": secrets}))
    return parse_hello(wire).secrets


def agent_with(secrets: SessionSecrets) -> AgentSecrets:
    agent = AgentSecrets()
    message = secrets.message()
    if message is not None:
        agent.replace(json.loads(json.dumps(message)))
    return agent


# Both sides


def test_an_agent_gives_back_what_it_was_given() -> None:
    host = made(TOKEN=TOKEN)
    agent = agent_with(host)
    assert agent.give(host.give({"ONCE": OTHER})) == {"ONCE": OTHER}
    again = SessionSecrets(host.stored)
    assert again.lost
    again.learn(hello(agent.message()))
    again.check()
    assert again.message() == agent.message() == host.message()
    assert again.cut(f"{TOKEN} {OTHER}") == f"{MARK} {MARK}"
    # The host learns secrets once: later messages change nothing.
    again.learn(hello({"variables": {}, "given": []}))
    assert again.message() == host.message()


def test_an_agent_cannot_have_other_words_cut_out() -> None:
    """Otherwise a compromised agent could hide its actions as a secret of the session."""
    host = made(TOKEN=TOKEN)
    theirs = SessionSecrets(StoredSecrets.new(["TOKEN"]), {"TOKEN": "rm -rf /important"})
    wire = theirs.message()
    assert wire is not None
    seal = agent_with(host).message()["variables"]["TOKEN"][1]
    for variables, once in (
        (wire["variables"], []),
        ({"TOKEN": ["rm -rf /important", seal]}, []),
        ({"TOKEN": ["rm -rf /important", "0" * 64]}, []),
        ({"OTHER": [TOKEN, seal]}, [["rm -rf /important", seal]]),
    ):
        again = SessionSecrets(host.stored)
        again.learn(hello({"variables": variables, "given": once}))
        assert again.cut("rm -rf /important") == "rm -rf /important"
        assert again.lost
        with pytest.raises(ConflictError, match=r"secrets \(TOKEN\) were lost") as caught:
            again.check()
        assert caught.value.fields["reason"] == "secrets_lost"


def test_a_session_without_secrets_has_none_to_lose() -> None:
    again = SessionSecrets(StoredSecrets.new([]))
    again.check()
    assert again.message() is None
    again.learn(hello({"variables": {}, "given": []}))
    again.check()


@pytest.mark.parametrize(
    "secrets",
    [
        None,
        [],
        {},
        {"variables": [], "given": []},
        {"variables": {}, "given": {}},
        {"variables": {"A": "value"}, "given": []},
        {"variables": {"A": ["value"]}, "given": []},
        {"variables": {"A": ["value", 5]}, "given": []},
        {"variables": {"A": ["value", "0" * 63]}, "given": []},
        {"variables": {"A": ["value", "0" * 64 + "\n"]}, "given": []},
        {"variables": {"A": ["\ud800" * 8, "0" * 64]}, "given": []},
        {"variables": {"A": ["x" * 40_000, "0" * 64]}, "given": []},
        {"variables": {}, "given": [["value", "0" * 64]] * 300},
        {"variables": {str(n): ["v", "0" * 64] for n in range(300)}, "given": []},
        {"variables": {}, "given": ["ab"]},
    ],
)
def test_what_agents_hold_is_checked_for_form(secrets: Any) -> None:
    with pytest.raises(ValueError, match="secret"):
        hello(secrets)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)


@given(_JSON)
def test_any_hello_is_taken_or_refused(value: Any) -> None:
    try:
        held = hello(value)
    except ValueError:
        return
    SessionSecrets(StoredSecrets.new([])).learn(held)


# The host's side


def test_what_one_session_is_given_is_bounded() -> None:
    host = made(TOKEN=TOKEN)
    for number in range(MOST_VALUES - 1):
        host.give({"ONCE": f"value number {number}"})
    with pytest.raises(ConflictError) as caught:
        host.give({"ONCE": "one too many"})
    assert caught.value.fields["reason"] == "too_many_secrets"
    # Known values can be given again, and refused values are not kept.
    host.give({"ONCE": "value number 5", "AGAIN": TOKEN})
    assert host.cut("one too many") == "one too many"
    with pytest.raises(ValidationError, match="65536 bytes in all"):
        made(A="a" * 32_768, B="b" * 32_769)
    large = made(A="a" * 32_768)
    with pytest.raises(ValidationError, match="in all"):
        large.give({"B": "b" * 32_768, "C": "c" * 8})


def test_nothing_that_is_stored_has_one_in_it() -> None:
    redactor = Redactor([TOKEN])
    fine = {"labels": {"a": "b"}, "role": None}
    check_not_stored(fine, redactor.value(fine))
    for name, member in (("labels", {TOKEN: "x"}), ("env", {"A": f"x{TOKEN}"}), ("id", TOKEN)):
        stored = {"role": None, name: member}
        with pytest.raises(ValidationError) as caught:
            check_not_stored(stored, redactor.value(stored))
        assert caught.value.fields["field"] == name


def test_they_are_shown_by_nothing() -> None:
    host = made(TOKEN=TOKEN)
    held = hello(host.message())
    for value in (host, host.stored, held, vars(host)["_known"]):
        assert TOKEN not in repr(value)
    assert host.names == ("TOKEN",)


# The agent's side


def test_variables_of_a_level_that_lists_them() -> None:
    host = made(SECRET_TOKEN=TOKEN, LANG="C.UTF-8 secretly", LD_PRELOAD="/workspace/own.so")
    agent = agent_with(host)
    assert agent.variables(LISTED) == {"SECRET_TOKEN": TOKEN, "LANG": "C.UTF-8 secretly"}
    assert agent.variables(None).keys() == {"SECRET_TOKEN", "LANG", "LD_PRELOAD"}
    # Values that commands do not get are redacted all the same.
    assert agent.cut(["/workspace/own.so"]) == [MARK]


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "PATH", "SECRET", "secret_x", "SECRET-X", "XSECRET_"]
)
def test_no_name_gets_around_the_list(name: str) -> None:
    assert not allowed_secret(name, LISTED)
    message = refused_variable([], [name], LISTED, "low")
    assert message is not None
    assert "begin it with SECRET_" in message
    # The prefix allows secrets only, not other variables.
    assert refused_variable(["SECRET_X"], [], LISTED, "low") is not None
    assert refused_variable([], ["SECRET_X"], LISTED, "low") is None


def test_errors_and_events_of_an_agent() -> None:
    agent = agent_with(made(TOKEN=TOKEN))
    error = agent.cut_error(AgentError("conflict", f"not a file: {TOKEN}.txt", "rule"))
    assert (error.code, error.message, error.rule) == (
        "conflict",
        f"not a file: {MARK}.txt",
        "rule",
    )
    agent.replace({"variables": {}, "given": []})
    assert agent.cut(TOKEN) == TOKEN
    for malformed in (
        {},
        {"variables": {"A": "x"}, "given": []},
        {"variables": 5, "given": []},
        {"variables": {}, "given": 5},
        {"variables": {}, "given": [5]},
    ):
        with pytest.raises((KeyError, TypeError, ValueError)):
            agent.replace(malformed)


def test_what_ends_an_agent_is_told_without_them(capsys: pytest.CaptureFixture[str]) -> None:
    """`docker logs` shows the message, and the record of the session's end contains it."""
    agent = agent_with(made(TOKEN=TOKEN))
    try:
        int(TOKEN)
    except ValueError as error:
        server._report(agent, type(error), error, error.__traceback__)
    said = capsys.readouterr().err
    assert f"invalid literal for int() with base 10: '{MARK}'" in said
    assert "Traceback" in said
    assert TOKEN not in said
