"""Secrets outside: put into the right field of an inspected request to the right host, only."""

import base64
import tomllib
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, ValidationError

from orchestrator.ground.config_error import ConfigError
from orchestrator.record.secrets.configured_secrets import ConfiguredSecrets
from orchestrator.record.secrets.proxy_secrets import ProxySecrets
from orchestrator.record.secrets.request_head import RequestHead
from orchestrator.record.secrets.sealer import KEY_FILE, own_sealer
from orchestrator.settings.operator_secrets import (
    OperatorSecret,
    check_levels,
    checked_secrets,
    load_secret,
)
from orchestrator.settings.settings import load_settings
from orchestrator.state.secret import INSTANCE, Holder, Secret, usable
from orchestrator.state.session import Session
from orchestrator.state.session_secrets import SessionSecrets, StoredSecrets
from sandbox_agent.decide.redaction import MARK

VALUE = "sk-canary-0123456789"
FIELDS: dict[str, Any] = {"environment": "X", "hosts": ["api.example"], "levels": ["out"]}
SECRETS = {
    "openai": OperatorSecret(**FIELDS, variable="OPENAI_API_KEY"),
    "mine": OperatorSecret(**{**FIELDS, "keys": ["ci"]}, variable="MINE"),
    "token": OperatorSecret(**FIELDS, headers=("X-Token",)),
}


def secret(name: str, use: OperatorSecret, holder: Holder = INSTANCE) -> Secret:
    return Secret(
        name,
        holder,
        use.hosts,
        use.headers,
        use.levels,
        use.variable,
        created_at="",
        set_at="",
        value=SecretStr(f"{VALUE}-{name}"),
        keys=use.keys,
    )


BY_NAME = {name: secret(name, use) for name, use in SECRETS.items()}


def outside() -> ProxySecrets:
    """The secrets, of which nothing is stored."""
    configured = ConfiguredSecrets({})
    configured.by_name = BY_NAME
    return ProxySecrets(*cast(Any, (None, None, configured, None)))


OUTSIDE = outside()


def session(level: str = "out", owner: str = "ci", **more: Any) -> Session:
    """Whatever of a session decides about its secrets."""
    members = {"name": level, "network": "egress", "environment": None, **more}
    level_of = SimpleNamespace(**members)
    secrets = SessionSecrets(StoredSecrets(), {})
    found = SimpleNamespace(level=level_of, owner=owner, key="s", secrets=secrets)
    return cast(Session, found)


def filled(field: str, text: str, whose: Session | None = None, **more: Any) -> str:
    head = RequestHead("GET", "api.example", 443, "/", ((field.encode(), text.encode()),))
    head = head._replace(secure=True)._replace(**more)
    return OUTSIDE.fill(whose or session(), head).headers[0][1].decode()


def test_a_placeholder_becomes_the_value() -> None:
    assert filled("Authorization", "Bearer paddock:openai") == f"Bearer {VALUE}-openai"
    assert filled("X-API-Key", "paddock:openai") == f"{VALUE}-openai"
    assert filled("x-token", "a paddock:token b") == f"a {VALUE}-token b"
    head = RequestHead("GET", "api.example", 443, "/", ((b"X-Api-Key", b"paddock:openai"),))
    assert OUTSIDE.fill(session(), head._replace(secure=True)).secrets == ("openai",)


def test_a_value_that_went_out_is_cut_out_of_the_record() -> None:
    whose = session()
    assert whose.secrets.cut(f"a {VALUE}-openai b") == f"a {VALUE}-openai b"
    filled("Authorization", "Bearer paddock:openai", whose)
    assert whose.secrets.cut(f"a {VALUE}-openai b") == f"a {MARK} b"
    assert whose.secrets.message() is None  # its agent does not get it
    for number in range(100):
        whose.secrets.went_out("changed", f"{VALUE}-{number}")
        whose.secrets.went_out(f"n{number}", f"{VALUE}-n{number}")
    assert whose.secrets.cut(f"{VALUE}-n99") == MARK


def test_a_placeholder_in_basic_credentials_becomes_the_value() -> None:
    def basic(pair: str) -> str:
        return f"Basic {base64.b64encode(pair.encode()).decode()}"

    assert filled("authorization", basic("me:paddock:openai")) == basic(f"me:{VALUE}-openai")
    assert filled("authorization", basic("me:other")) == basic("me:other")
    assert filled("authorization", "Basic !") == "Basic !"


@pytest.mark.parametrize(
    "more",
    [
        {"host": "other.example"},
        {"host": "x.api.example"},
        {"secure": False},
        {"method": "TRACE"},
        {"whose": session("medium")},
        {"whose": session(network="open")},
    ],
)
def test_other_hosts_requests_and_sessions_get_no_value(more: dict[str, Any]) -> None:
    text = "Bearer paddock:openai"
    assert filled("Authorization", text, **more) == text


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("Cookie", "paddock:openai"),
        ("X-Token", "paddock:openai"),
        ("Authorization", "paddock:token"),
        ("Authorization", "paddock:openai-2"),
        ("Authorization", "paddock:OPENAI"),
        ("Authorization", "paddock:none"),
    ],
)
def test_other_fields_and_names_are_passed_as_they_are(field: str, text: str) -> None:
    assert filled(field, text) == text


def test_a_secret_may_be_for_some_keys() -> None:
    assert filled("Authorization", "paddock:mine") == f"{VALUE}-mine"
    other = session(owner="other")
    assert filled("Authorization", "paddock:mine", other) == "paddock:mine"
    assert OUTSIDE.variables(other) == {"OPENAI_API_KEY": "paddock:openai"}


def test_commands_get_the_placeholder_that_their_level_allows() -> None:
    assert OUTSIDE.variables(session()) == {
        "OPENAI_API_KEY": "paddock:openai",
        "MINE": "paddock:mine",
    }
    assert OUTSIDE.variables(session(environment=("LANG", "OPENAI_*"))) == {
        "OPENAI_API_KEY": "paddock:openai"
    }
    assert OUTSIDE.variables(session("medium")) == {}


@given(
    st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E)),
    st.sampled_from(["Host", "Cookie", "Accept"]),
)
def test_nothing_that_is_not_a_placeholder_changes(text: str, field: str) -> None:
    assert filled(field, text) == text
    if "paddock:" not in text and not text.lower().startswith("basic"):
        assert filled("Authorization", text) == text


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hosts": []}, "hosts"),
        ({"hosts": ["*.example"]}, "hosts.0"),
        ({"hosts": ["127.0.0.1"]}, "hosts.0"),
        ({"levels": []}, "levels"),
        ({"keys": []}, "keys"),
        ({"variable": "A B"}, "variable"),
        ({"headers": ["Host"]}, "headers.0"),
        ({"headers": ["Proxy-Authorization"]}, "headers.0"),
        ({"value": VALUE}, "value"),
        ({"environment": None}, ""),
        ({"file": "/x"}, ""),
    ],
)
def test_a_bad_secret_is_refused_with_its_field(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as refused:
        OperatorSecret(**{**FIELDS, **change})
    (error, *_) = refused.value.errors()
    assert ".".join(map(str, error["loc"])) == field
    assert VALUE not in str(refused.value)


@pytest.mark.parametrize("names", [["Open"], ["a b"], [""], ["a", "b"]])
def test_names_and_variables_must_be_clear(names: list[str]) -> None:
    secret = OperatorSecret(**FIELDS, variable="A")
    with pytest.raises(ValueError, match=r"is not a name|is the variable of a already"):
        checked_secrets(dict.fromkeys(names, secret))


def test_a_value_comes_from_a_file_or_a_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "key"
    path.write_text(f"{VALUE}\n")
    monkeypatch.setenv("X", VALUE)
    from_file = OperatorSecret(**{**FIELDS, "environment": None, "file": path})
    for secret in (from_file, OperatorSecret(**FIELDS)):
        assert load_secret("a", secret).get_secret_value() == VALUE


@pytest.mark.parametrize("text", ["", "short", f"{VALUE}\r\nX: y", f"{VALUE} b", "é" * 20])
def test_a_bad_value_is_refused_and_not_shown(tmp_path: Path, text: str) -> None:
    path = tmp_path / "key"
    path.write_text(text)
    secret = OperatorSecret(**{**FIELDS, "environment": None, "file": path})
    with pytest.raises(ConfigError) as refused:
        load_secret("a", secret)
    assert str(refused.value).startswith(f"secrets: a: {path}: must have 8 to 8192 visible")
    path.unlink()
    with pytest.raises(ConfigError, match="No such file"):
        load_secret("a", secret)


def test_a_missing_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("X", raising=False)
    with pytest.raises(ConfigError, match="secrets: a: the variable X is not set"):
        load_secret("a", OperatorSecret(**FIELDS))


def test_settings_have_them_in_the_file_or_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "paddock.toml"
    path.write_text(
        '[secrets.openai]\nenvironment = "KEY"\nhosts = ["API.example."]\nlevels = ["out"]\n'
    )
    monkeypatch.setenv("PADDOCK_CONFIG_FILE", str(path))
    assert load_settings().secrets["openai"].hosts == ("api.example",)
    text = '{"a": {"file": "/x", "hosts": ["b.example"], "levels": ["out"]}}'
    monkeypatch.setenv("PADDOCK_SECRETS", text)
    assert list(load_settings().secrets) == ["a"]
    monkeypatch.setenv("PADDOCK_SECRETS", text.replace("levels", "level"))
    with pytest.raises(ConfigError, match=r"PADDOCK_SECRETS: a\.level"):
        load_settings()


def test_a_level_that_there_is_not_is_refused_by_name() -> None:
    """Nobody could use the secret, and nothing would say so."""
    secrets = {"a": OperatorSecret(**FIELDS), "b": OperatorSecret(**{**FIELDS, "levels": ["low"]})}
    check_levels(secrets, ["low", "out"])
    with pytest.raises(ConfigError, match=r"^secrets: a\.levels\.0: must be one of low, high$"):
        check_levels(secrets, ["low", "high"])


def test_the_documented_table_is_valid() -> None:
    document = (Path(__file__).parents[2] / "docs" / "egress.md").read_text()
    text = document.partition("## Secrets")[2].partition("```toml\n")[2].partition("```")[0]
    (name, members), *_ = tomllib.loads(text)["secrets"].items()
    assert OperatorSecret(**members).variable == "OPENAI_API_KEY"
    assert name == "openai"


def test_the_narrowest_of_a_name_or_a_variable_is_used() -> None:
    use = SECRETS["openai"]
    own = secret("openai", use, Holder("ci", "s"))
    of_key = secret("openai", use, Holder("ci"))
    other = secret("other", use, Holder("ci"))
    whose = session()
    assert usable(whose, [BY_NAME, {"openai": of_key}, {"openai": own}])[0]["openai"] is own
    by_name, by_variable = usable(whose, [BY_NAME, {"other": other}])
    assert (by_name["openai"], by_variable["OPENAI_API_KEY"]) == (BY_NAME["openai"], other)
    for holder in (Holder("other"), Holder("ci", "another")):
        assert not secret("openai", use, holder).serves(whose)
    # What the narrower one does not serve, the wider one does.
    elsewhere = replace(of_key, levels=("another",))
    assert usable(whose, [BY_NAME, {"openai": elsewhere}])[0]["openai"] is BY_NAME["openai"]


def test_a_value_without_its_secret_is_lost(tmp_path: Path) -> None:
    sealer = own_sealer(tmp_path)
    sealed = sealer.seal(SecretStr(VALUE), b"for api.example")
    assert VALUE.encode() not in sealed
    assert own_sealer(tmp_path).open(sealed, b"for api.example") == SecretStr(VALUE)
    for changed, bound in (
        (sealed, b"for other.example"),
        (sealed[:-1] + bytes([sealed[-1] ^ 1]), b"for api.example"),
        (b"", b"for api.example"),
    ):
        assert sealer.open(changed, bound) is None
    (tmp_path / KEY_FILE).unlink()
    assert own_sealer(tmp_path).open(sealed, b"for api.example") is None


def test_values_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(VALUE)
    secrets = ConfiguredSecrets(
        {"a": OperatorSecret(**{**FIELDS, "environment": None, "file": path})}
    )
    first = secrets.by_name["a"]
    secrets.read()()
    assert secrets.by_name["a"] is first
    path.write_text(f"{VALUE}-2")
    replace_all = secrets.read()
    assert secrets.by_name["a"] is first
    replace_all()
    assert secrets.by_name["a"].value == SecretStr(f"{VALUE}-2")
    path.write_text("short")
    with pytest.raises(ConfigError):
        secrets.read()
    assert secrets.by_name["a"].value == SecretStr(f"{VALUE}-2")
