"""The log: one line per record, no secrets, and no delays."""

import json
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from api.log.lines import REDACTED, Redaction, make_formatter
from api.log.logs import LogWriter, logging_to_stdout
from orchestrator.ground.log_context import know_secrets, logging_about, session_context
from orchestrator.rules.access.keys import new_handle
from orchestrator.settings.settings import Settings
from sandbox_agent.decide.redaction import Redactor

ADMIN_KEY = "an-admin-key-without-a-prefix"


def record(message: str, *args: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("paddock.test", logging.INFO, "x.py", 1, message, args, None)
    made.__dict__.update(extra)
    return made


def formatted(kind: str, made: logging.LogRecord) -> str:
    return make_formatter(kind, secrets=[ADMIN_KEY]).format(made)


@pytest.mark.parametrize("kind", ["json", "console"])
def test_secrets_never(kind: str) -> None:
    key, handle, bearer = f"pdk_{'aZ0_-' * 8}", new_handle(), "Bearer some.other.token"
    for secret in (key, handle, handle.upper(), bearer, ADMIN_KEY):
        token = secret.removeprefix("Bearer ")
        for made in (
            record(f"message {secret}"),
            record("message %s", f"x={secret};"),
            record("message", header=secret),
            record("message", nested={"deep": [{"er": f"a {secret} b"}], secret: 1}),
            record("message", thing=Exception(secret)),
        ):
            line = formatted(kind, made)
            assert token not in line, secret
            assert REDACTED in line, secret


@pytest.mark.parametrize("name", ["authorization", "Handle", "admin_key", "token", "lease_id"])
def test_what_is_named_like_a_secret_never(name: str) -> None:
    line = formatted("json", record("m", **{name: "abc-123", "headers": {name: ["abc-123"]}}))
    assert "abc-123" not in line


def test_tracebacks_are_told_without_secrets() -> None:
    secret = new_handle()
    try:
        raise RuntimeError(f"bad {secret}")
    except RuntimeError:
        made = record("failed")
        made.exc_info = sys.exc_info()
    for kind in ("json", "console"):
        line = formatted(kind, made)
        assert "RuntimeError: bad " in line
        assert "test_logs.py" in line
        assert secret not in line
    assert "\n" not in formatted("json", made)


def test_a_record_of_json() -> None:
    with logging_about({"request_id": "abc", "session_id": "s-1"}):
        line = formatted("json", record("it is %d", 5, route="/a"))
    event = json.loads(line)
    assert event.pop("time").endswith("Z")
    assert event == {
        "event": "it is 5",
        "level": "info",
        "logger": "paddock.test",
        "request_id": "abc",
        "session_id": "s-1",
        "route": "/a",
    }


SESSION_SECRET = "correct-horse-battery"
PIECES = st.sampled_from(
    [
        *(ADMIN_KEY, ADMIN_KEY[:12], SESSION_SECRET, SESSION_SECRET[:9], SESSION_SECRET[9:]),
        *("bearer ", "Bearer", " ", "H-", "0123abcd-0123-0123-0123-0123456789ab", "pdk_", "abc"),
        *("...", "\\", "%2d", '"', "\0", "[", "POST", "\n"),
    ]
)
FIELD = st.lists(PIECES, max_size=5).map("".join) | st.none() | st.integers() | st.lists(PIECES)
NAMES = st.sampled_from(("event", "route", "Token", "key", "principal", "time"))


@given(st.dictionaries(NAMES, FIELD))
def test_fields_are_searched_together_as_each_alone(fields: dict[str, Any]) -> None:
    redaction = Redaction([ADMIN_KEY])
    with logging_about({}):
        know_secrets(Redactor([SESSION_SECRET]).text)
        alone: dict[str, Any] = {}
        for name, value in fields.items():
            alone |= redaction.cut({name: value})
        assert redaction.cut(fields) == alone


def test_a_secret_of_the_session_is_found_in_each_field() -> None:
    for name in ("route", "principal", "said"):
        with logging_about({"request_id": "abc"}):
            know_secrets(Redactor([SESSION_SECRET]).text)
            line = formatted("json", record("request", **{name: f"a {SESSION_SECRET}"}))
        assert json.loads(line)[name] == f"a {REDACTED}"
        assert json.loads(line)["request_id"] == "abc"


def test_an_attribute_is_shown_by_its_name(caplog: pytest.LogCaptureFixture) -> None:
    """What every record has is no field of a line, whatever Python's version adds to it."""
    with caplog.at_level(logging.INFO):
        logging.getLogger("paddock.test").info("m", extra={"route": "/a"})
    line = json.loads(formatted("json", caplog.records[0]))
    assert line.keys() == {"event", "level", "logger", "route", "time"}


@given(st.text(st.characters(codec=None, categories=None)))
def test_whatever_is_said_is_one_line(text: str) -> None:
    made = record("%s", text, said=text, many=[text])
    line = formatted("json", made)
    assert len(line.splitlines()) == 1
    assert json.loads(line)["event"] == Redaction([ADMIN_KEY]).cut({"event": text})["event"]
    shown = formatted("console", made)
    assert not set(shown) & {"\n", "\r", "\x1b", "\x07", "\x9b"}


def test_a_context_of_a_session_has_no_request() -> None:
    with logging_about({"request_id": "abc"}):
        line = session_context("s-1", str).run(formatted, "json", record("m"))
    assert json.loads(line)["session_id"] == "s-1"
    assert "request_id" not in json.loads(line)


def settings(tmp_path: Path, **members: Any) -> Settings:
    return Settings(state_dir=tmp_path, admin_key=SecretStr(ADMIN_KEY), **members)


def logged(
    write: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **members: Any
) -> list[str]:
    monkeypatch.delenv("PADDOCK_CONFIG_FILE", raising=False)
    path = tmp_path / "log"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        with logging_to_stdout(settings(tmp_path, **members), descriptor):
            write()
    finally:
        os.close(descriptor)
    return path.read_text().splitlines()


def test_levels_and_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def write() -> None:
        log = logging.getLogger("paddock.test")
        log.info("quiet")
        log.warning("loud %s", ADMIN_KEY)

    root = logging.getLogger()
    before = root.level, list(root.handlers)
    lines = logged(write, tmp_path, monkeypatch, log_level="WARNING")
    assert [json.loads(line)["event"] for line in lines] == [f"loud {REDACTED}"]
    (tmp_path / "log").unlink()
    lines = logged(write, tmp_path, monkeypatch, log_format="console")
    assert len(lines) == 2
    assert "quiet" in lines[0]
    assert "\x1b" not in lines[0]
    assert (root.level, root.handlers) == before


def test_a_reader_that_does_not_read_holds_up_nothing() -> None:
    reading, writing = os.pipe()
    handler = LogWriter(writing, most_waiting=3)
    handler.setFormatter(make_formatter("json"))
    for number in range(200):
        handler.emit(record("x" * 4096, number=number))
    text = b""
    while b"were dropped" not in text:
        text += os.read(reading, 1 << 16)
        handler.emit(record("more"))
    handler.close()
    os.close(reading)
    os.close(writing)


def test_lines_that_wait_are_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a small group waits for more lines; otherwise a flood would fill the queue."""
    reading, writing = os.pipe()
    handler = LogWriter(writing)
    handler.setFormatter(make_formatter("json"))
    waited = list[int]()
    monkeypatch.setattr(handler._ending, "wait", lambda _: waited.append(handler._lines.qsize()))
    handler.emit(record("x" * (1 << 20)))  # more than the pipe holds
    text = os.read(reading, 1)  # the thread writes it now, until it is read
    waited.clear()
    for _ in range(1000):
        handler.emit(record("more"))
    while text.count(b"more") < 1000:
        text += os.read(reading, 1 << 16)
    handler.close()
    os.close(reading)
    os.close(writing)
    assert max(waited) < 128


def test_a_reader_that_has_gone_does_no_harm() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    handler = LogWriter(writing)
    handler.setFormatter(make_formatter("json"))
    handler.emit(record("for nobody"))
    handler.emit(record("for nobody"))
    handler.close()
    handler.close()
    os.close(writing)
