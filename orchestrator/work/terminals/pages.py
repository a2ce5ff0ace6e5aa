"""Validates what an agent answers when a terminal is read: agents can't be trusted."""

import base64
from typing import Any, NamedTuple

from orchestrator.host.link.messages import malformed
from sandbox_agent.decide.protocol import Message
from sandbox_agent.decide.sanitize import MAX_LINE_BYTES

# The output of one answer.
READ_BYTES = 128 * 1024
# The longest directory, or message about a command's syntax, in characters.
_MOST_TEXT = 16 * 1024


class Exit(NamedTuple):
    """How a program ended."""

    exit_code: int | None
    signal: str | None
    reason: str | None


class RunState(NamedTuple):
    """The latest command of a kept shell, as its agent knows it.

    `at`: where its output ends; it and the two others are None while the command runs.
    """

    number: int
    syntax_error: str
    exit_code: int | None = None
    cwd: str | None = None
    at: int | None = None


class Page(NamedTuple):
    """A piece of a program's output.

    `waits`: it printed nothing and waits for input; `line_bytes`: the longest line that it accepts
    now. `run` is set for a kept shell.
    """

    data: bytes
    waits: bool
    line_bytes: int
    ended: Exit | None
    run: RunState | None = None


def parse_exit(value: Any) -> Exit:
    """How a program ended, as reported by the agent. Raises: SandboxUnavailableError."""
    if not isinstance(value, dict):
        raise malformed()
    exit_code, signal, reason = (value.get(name) for name in ("exit_code", "signal", "reason"))
    texts = all(
        text is None or (isinstance(text, str) and len(text) < 128) for text in (signal, reason)
    )
    if not isinstance(exit_code, int) or isinstance(exit_code, bool) or not texts:
        raise malformed()
    return Exit(exit_code, signal, reason)


def parse_page(answer: Message, position: int) -> Page:
    """The result of reading from `position` on. Raises: SandboxUnavailableError."""
    try:
        data = base64.b64decode(answer["data"], validate=True)
        sound = len(data) <= READ_BYTES and answer["next"] == position + len(data)
        line_bytes, ended = answer["line_bytes"], answer["ended"]
        sound = sound and type(line_bytes) is int
    except (KeyError, TypeError, ValueError):
        raise malformed() from None
    if not sound:
        raise malformed()
    ending = None if ended is None else parse_exit(ended)
    run = None if answer.get("run") is None else _parse_run(answer["run"])
    return Page(data, answer.get("waits") is True, min(line_bytes, MAX_LINE_BYTES), ending, run)


def _parse_run(value: Any) -> RunState:
    """The latest command of a kept shell. Raises: SandboxUnavailableError."""
    try:
        number, error, ended = value["number"], value["syntax_error"], value["ended"]
        state = RunState(number, error)
        if ended is not None:
            state = RunState(number, error, ended["exit_code"], ended["cwd"], ended["at"])
    except (KeyError, TypeError):
        raise malformed() from None
    numbers = [state.number] if ended is None else [state.number, state.exit_code, state.at]
    texts = [state.syntax_error] if ended is None else [state.syntax_error, state.cwd]
    if not all(type(each) is int for each in numbers):
        raise malformed()
    if not all(isinstance(each, str) and len(each) <= _MOST_TEXT for each in texts):
        raise malformed()
    return state
