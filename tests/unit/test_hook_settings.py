"""Hooks of the configuration: what is wrong is named, and no message has the secret."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.config_error import ConfigError
from orchestrator.settings.operator_hooks import OperatorHook, load_hook_secret
from orchestrator.settings.settings import load_settings

SECRET = "canary-of-the-hook-secret"
GOOD = {"url": "https://ci.example.com/a", "secret": SECRET, "events": ["session.closed"]}


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PADDOCK_CONFIG_FILE", raising=False)


def test_hooks_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_HOOKS", json.dumps({"ci": {**GOOD, "key": "ci"}}))
    monkeypatch.setenv("PADDOCK_HOOK_PREFIXES", "https://a.example/, https://b.example/x/")
    settings = load_settings()
    assert settings.hooks["ci"].events == ("session.closed",)
    assert settings.hooks["ci"].key == "ci"
    assert SECRET not in repr(settings)
    assert settings.hook_prefixes == ("https://a.example/", "https://b.example/x/")


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("Ci", {}),
        ("hook-0123456789abcdef", {}),
        ("ci", {"url": "ci.example.com"}),
        ("ci", {"url": "https://me@ci.example.com/"}),
        ("ci", {"url": "https://ci.example.com:0x/"}),
        ("ci", {"events": []}),
        ("ci", {"events": ["session.paused"]}),
        ("ci", {"secret": "short"}),
        ("ci", {"secret": None}),
        ("ci", {"secret_file": "/etc/hook.secret"}),
        ("ci", {"owner": "ci"}),
        ("ci", {"key": ""}),
    ],
)
def test_what_is_wrong_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, change: dict[str, Any]
) -> None:
    monkeypatch.setenv("PADDOCK_HOOKS", json.dumps({name: {**GOOD, **change}}))
    with pytest.raises(ConfigError) as caught:
        load_settings()
    assert str(caught.value).startswith("PADDOCK_HOOKS: ")
    assert SECRET not in str(caught.value)


def test_there_may_be_fifty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_HOOKS", json.dumps({f"h{n}": GOOD for n in range(51)}))
    with pytest.raises(ConfigError, match="at most 50"):
        load_settings()


def test_prefixes_are_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_HOOK_PREFIXES", "https://a.example/,b.example")
    with pytest.raises(ConfigError, match="PADDOCK_HOOK_PREFIXES"):
        load_settings()


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        (b"short", "must be at least 16"),
        (SECRET.encode() + b"\nmore words", "must be at least 16 visible"),
        (b"\xff" * 32, "must be at least 16 visible ASCII"),
    ],
)
def test_a_file_without_a_secret_is_named(
    tmp_path: Path, content: bytes | None, reason: str
) -> None:
    path = tmp_path / "secret"
    if content is not None:
        path.write_bytes(content)
    hook = OperatorHook.model_validate({**GOOD, "secret": None, "secret_file": path})
    with pytest.raises(ConfigError, match=reason) as caught:
        load_hook_secret("ci", hook)
    assert str(caught.value).startswith(f"hooks: ci: {path}: ")
    assert SECRET not in str(caught.value)
