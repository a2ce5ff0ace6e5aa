"""The agent's reports about a terminal whose program prints during the examination."""

import base64
import os
import socket
import tty
from collections.abc import Iterator
from typing import Any, cast

import pytest

from sandbox_agent.core.limits import Meter
from sandbox_agent.core.loop import WRITE, Loop
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.profile import Tool
from sandbox_agent.pty.device import MOST_COOKED_BYTES
from sandbox_agent.pty.prompt_detector import Program as File
from sandbox_agent.pty.prompt_detector import PromptDetector
from sandbox_agent.pty.request import Request
from sandbox_agent.pty.terminal import Terminal
from sandbox_agent.pty.untaken_input import MOST_BYTES

MOST_LINE_BYTES = 10_000
REQUEST = Request(
    terminal_id="pty-1",
    tool=Tool(programs=[], read=[], write=[], writable_code=False, ptrace=False),
    plan=Plan("tool", ["tool"], {}, ".", [], "/workspace", terminal=True),
    rows=24,
    columns=80,
    terminator=b";\n",
    sanitize=[],
    commands=frozenset({"do"}),
    max_line_bytes=MOST_LINE_BYTES,
    lifetime_ms=10**9,
    idle_ms=10**9,
)


class Program:
    """A guard and the examined program: holds the slave, and prints when it is examined."""

    def __init__(self) -> None:
        self.socket, self._other = socket.socketpair()
        self.meter = Meter()
        self.slave = -1
        self.waits = True
        self.reads = File(1, 1)
        self.says: list[bytes] = []

    def prepare(self, _work_id: str, _plan: Plan, pipes: Pipes) -> None:
        self.slave = os.dup(pipes.stdin)

    def go(self) -> None:
        pass

    def waiting_program(self, _master: int, _terminal: int, only: File | None) -> File | None:
        if self.says:
            os.write(self.slave, self.says.pop())
        return self.reads if self.waits and only in (None, self.reads) else None

    def close(self) -> None:
        for end in (self.socket, self._other):
            end.close()
        os.close(self.slave)


@pytest.fixture
def program() -> Iterator[Program]:
    program = Program()
    yield program
    program.close()


@pytest.fixture
def terminal(program: Program) -> Iterator[Terminal]:
    guard, prompts = cast(Guard, program), cast(PromptDetector, program)
    terminal = Terminal(Loop(), guard, REQUEST, prompts, lambda: None, lambda _: None)
    yield terminal
    os.close(terminal._master)


def read(terminal: Terminal, after: int = 0) -> Message:
    pages: list[Any] = []
    terminal.read({"after": after, "limit": 100, "wait_ms": 0}, pages.append)
    (page,) = pages
    return cast(Message, page)


def test_who_speaks_just_before_it_waits_has_not_said_all(
    terminal: Terminal, program: Program
) -> None:
    program.says = [b"the end of its answer"]
    assert read(terminal)["waits"] is False
    page = read(terminal)
    assert base64.b64decode(page["data"]) == b"the end of its answer"
    assert page["waits"] is False  # until that output was taken
    assert read(terminal, page["next"])["waits"] is True
    program.waits = False
    assert read(terminal, page["next"])["waits"] is False


def test_who_waits_when_the_first_line_is_sent_is_the_tool(
    terminal: Terminal, program: Program
) -> None:
    tty.setraw(program.slave)  # no echo, which could come at any time
    program.reads = File(1, 2)  # perhaps the process that started the tool
    assert read(terminal)["waits"] is True
    program.reads = File(1, 1)
    assert read(terminal)["waits"] is True
    terminal.send("do", "x", {})
    program.reads = File(1, 2)
    assert read(terminal)["waits"] is False
    program.reads = File(1, 1)
    assert read(terminal)["waits"] is True


def test_how_long_a_line_may_be_depends_on_who_edits_it(
    terminal: Terminal, program: Program
) -> None:
    assert read(terminal)["line_bytes"] == MOST_COOKED_BYTES - len(REQUEST.terminator)

    tty.setraw(program.slave)
    assert read(terminal)["line_bytes"] == MOST_LINE_BYTES


@pytest.fixture
def shell(program: Program) -> Iterator[Terminal]:
    guard, prompts = cast(Guard, program), cast(PromptDetector, program)
    request = REQUEST._replace(commands=None)
    terminal = Terminal(Loop(), guard, request, prompts, lambda: None, lambda _: None)
    yield terminal
    os.close(terminal._master)


def test_a_shell_takes_any_bytes_and_another_size(program: Program, shell: Terminal) -> None:
    tty.setraw(program.slave)
    answers: list[Message | AgentError] = []
    shell.write(b"\x03\x00\xff", answers.append)
    shell.resize(40, 120)
    assert answers == [{}]
    assert os.read(program.slave, 10) == b"\x03\x00\xff"
    assert os.get_terminal_size(program.slave) == (120, 40)


def test_what_a_shell_does_not_read_is_bounded(program: Program, shell: Terminal) -> None:
    tty.setraw(program.slave)
    answers: list[Message | AgentError] = []
    with pytest.raises(AgentError, match="at most"):
        shell.write(b"x" * (MOST_BYTES + 1), answers.append)
    shell.write(b"x" * MOST_BYTES, answers.append)
    assert answers == []
    with pytest.raises(AgentError, match="does not read"):
        shell.write(b"y", answers.append)
    said = b""
    while len(said) < MOST_BYTES:
        said += os.read(program.slave, 65536)
        shell._on_ready(WRITE)
    assert answers == [{}]
    shell.write(b"y", answers.append)
    assert os.read(program.slave, 10) == b"y"


def test_a_caller_that_waits_learns_of_the_end(program: Program, shell: Terminal) -> None:
    answers: list[Message | AgentError] = []
    tty.setraw(program.slave)
    shell.write(b"x" * MOST_BYTES, answers.append)
    shell._input.close()
    (answer,) = answers
    assert isinstance(answer, AgentError)
    assert answer.code == "conflict"


def test_a_tool_takes_lines_only(terminal: Terminal) -> None:
    with pytest.raises(AgentError) as refused:
        terminal.write(b"rm -rf /\n", lambda _: None)
    assert (refused.value.code, refused.value.rule) == ("permission_denied", "unknown-tool")
    with pytest.raises(AgentError):
        terminal.resize(10, 10)
