"""How the command line shows values and events: readable, and harmless on a terminal."""

import sys
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.cli import output
from paddock.cli.description import outcome, summary
from paddock.cli.resources.events import line
from tests.support.cli import Stream, run

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@given(st.text())
def test_plain_text_has_nothing_that_moves_a_cursor(text: str) -> None:
    shown = output.plain(text)
    assert shown.isprintable()
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (268435456, "256 MiB"),
        (4 * 2**30, "4.0 GiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_sizes(count: int | None, text: str) -> None:
    assert output.size(count) == text


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (None, "-"),
        (0, "0 s"),
        (0.0042, "0.0042 s"),
        (1.5, "1.5 s"),
        (59, "59 s"),
        (60, "1m"),
        (200, "3m 20s"),
        (3600, "1h"),
        (3725, "1h 2m"),
    ],
)
def test_durations(duration: float | None, text: str) -> None:
    assert output.seconds(duration) == text


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (None, "-"),
        ("2026-01-02T03:04:05.000000Z", "0s"),
        ("2026-01-02T03:04:06Z", "0s"),
        ("2026-01-02T02:59:05Z", "5m"),
        ("2026-01-01T03:04:05Z", "1d"),
    ],
)
def test_ages(time: str | None, text: str) -> None:
    assert output.age(datetime.fromisoformat(time) if time else None, NOW) == text


@pytest.mark.parametrize(
    ("result", "text"),
    [
        ({"exit_code": 0}, "exit 0"),
        ({"exit_code": 143, "timed_out": True}, "timed out"),
        ({"exit_code": 137, "signal": "SIGKILL"}, "SIGKILL"),
        ({"exit_code": 137, "signal": "SIGKILL", "reason": "oom"}, "SIGKILL, oom"),
        ({"exit_code": 1, "reason": "disk"}, "exit 1, disk"),
        ({}, "end unknown"),
        ({"exit_code": None, "reason": "crash"}, "crash"),
    ],
)
def test_outcomes(result: dict[str, object], text: str) -> None:
    assert outcome(result) == text


@pytest.mark.parametrize(
    ("event", "text"),
    [
        ({"operation": "command.start", "args": {"argv": ["ls", "a b"]}}, "ls 'a b'"),
        (
            {"operation": "command.exit", "result": {"exit_code": 0, "leftover_killed": 2}},
            "exit 0, 2 left-over processes killed",
        ),
        ({"operation": "file.move", "args": {"source": "a", "destination": "b"}}, "a → b"),
        ({"operation": "file.read", "args": {"path": "a"}, "result": {"bytes": 3}}, "a (3 bytes)"),
        ({"operation": "file.read", "args": {"path": "a"}, "error": "is a FIFO"}, "a: is a FIFO"),
        ({"operation": "audit.gap", "args": {"commands": ["c1", "c2"]}}, "commands=c1,c2"),
        (
            {
                "operation": "session.create",
                "args": {"image": "i", "labels": {"k": "v"}, "env": []},
            },
            "image=i labels=k:v",
        ),
        ({"operation": "session.terminated", "result": {"status": "aborted"}}, "status=aborted"),
        ({"operation": "unheard.of", "args": None, "result": None}, ""),
    ],
)
def test_summaries(event: dict[str, object], text: str) -> None:
    assert summary(event) == text


@given(
    st.dictionaries(
        st.sampled_from(["operation", "args", "result", "error"]),
        st.none() | st.dictionaries(st.text(), st.lists(st.text()) | st.integers()),
    )
)
def test_any_event_has_a_bounded_summary(event: dict[str, object]) -> None:
    assert len(summary(event)) <= 401


def test_lines_of_events() -> None:
    event = {
        "id": 12,
        "seq": 3,
        "time": "2026-01-02T03:04:05.678900Z",
        "session_id": "web-1",
        "operation": "command.start",
        "decision": "deny",
        "rule": "command-allowlist",
        "args": {"argv": ["reboot"]},
        "error": "not allowed",
    }
    text = "".join(part for part, _ in line(event, with_session=True))
    assert text.split()[1:] == [
        *("12", "web-1", "✗", "command.start", "reboot:", "not", "allowed", "[command-allowlist]"),
    ]
    assert ".678" in text
    assert line(event, with_session=False)[1][0].strip() == "3"


def test_pipes_get_whole_lines_and_no_colour(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("name", ">count"), [("x" * 300, 1), ("\x1b[31mred", None)], nothing="")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["NAME", "COUNT"]
    assert lines[1].split() == ["x" * 300, "1"]
    assert lines[2].split() == ["\\x1b[31mred", "-"]


@pytest.mark.parametrize("no_colour", [False, True])
def test_colour_is_for_terminals_that_want_it(
    no_colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    if no_colour:
        monkeypatch.setenv("NO_COLOR", "1")
    stream = Stream(terminal=True)
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_table(("status",), [("active",)], nothing="")
    assert ("\x1b[32m" in stream.text()) is not no_colour
    output.print_json({"a": [1]})
    assert '"a"' in stream.text()


def test_nothing_is_said_aside(capsys: pytest.CaptureFixture[str]) -> None:
    output.print_table(("a",), [], nothing="none here")
    told = capsys.readouterr()
    assert (told.out, told.err) == ("", "none here\n")


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    output.complain("two\nlines and \x1b]0;title\x07")
    assert capsys.readouterr().err == "paddock: two\\nlines and \\x1b]0;title\\x07\n"


@pytest.mark.parametrize("is_terminal", [False, True])
def test_json_is_ascii(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Stream(terminal=is_terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    output.print_json({"name": "é\x9b"})
    assert "\\u00e9\\u009b" in stream.text()
    assert stream.text().isascii()


_HOSTILE = "\x1b]0;title\x07 \x1b[2J\x9b5n\u202eé\ta\r\n"


def test_what_a_sandbox_prints_is_harmless_on_a_terminal() -> None:
    stream = Stream(terminal=True)
    output.print_foreign(_HOSTILE, stream)
    assert stream.text() == "\\x1b]0;title\\x07 \\x1b[2J\\x9b5n\\u202eé\ta\r\n"


@pytest.mark.parametrize(("is_terminal", "raw"), [(False, False), (False, True), (True, True)])
def test_what_a_sandbox_prints_is_passed_on_elsewhere(is_terminal: bool, raw: bool) -> None:
    stream = Stream(terminal=is_terminal)
    output.print_foreign(_HOSTILE, stream, raw=raw)
    assert stream.text() == _HOSTILE


def test_a_help_page_on_a_terminal() -> None:
    assert "Usage:" in run("run", "--help", terminal=True).out


def test_a_program_that_a_command_executes_is_shown_by_its_words() -> None:
    args = {"argv": ["sed", "-i", "s/a/b c/"], "by": "/bin/sh", "path": "/bin/sed"}
    event = {"operation": "command.exec", "args": args}
    assert summary(event) == "sed -i 's/a/b c/'"
