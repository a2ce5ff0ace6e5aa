"""The agent's side of a kept shell: what it makes of the reports of its bash."""

import base64
import os
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from sandbox_agent.core.limits import Meter
from sandbox_agent.core.loop import READ, Loop
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.profile import Tool
from sandbox_agent.pty.kept_shell import KeptShell
from sandbox_agent.pty.prompt_detector import PromptDetector
from sandbox_agent.pty.request import Request
from sandbox_agent.pty.unread_output import MOST_BYTES

REQUEST = Request(
    terminal_id="pty-1",
    tool=Tool(programs=[], read=[], write=[], writable_code=False, ptrace=False),
    plan=Plan("bash", ["bash"], {}, ".", [], "/workspace", terminal=True),
    rows=24,
    columns=80,
    terminator=b"",
    sanitize=[],
    commands=None,
    max_line_bytes=100,
    lifetime_ms=10**9,
    idle_ms=10**9,
    kept="bash",
)


class Bash:
    """A guard, and the bash that it starts: says what the test wants."""

    def __init__(self) -> None:
        self.socket, self._other = socket.socketpair()
        self.meter = Meter()
        self.uid = os.getuid()
        self.closed = False
        self.slave = self.control = -1
        self.waits = False
        self.orders: list[bytes] = []

    def prepare(self, _work_id: str, _plan: Plan, pipes: Pipes) -> None:
        assert pipes.control is not None
        self.slave, self.control = os.dup(pipes.stdin), os.dup(pipes.control)

    def go(self) -> None:
        pass

    def stopping(self) -> None:
        pass

    def order(self, kind: bytes) -> bool:
        self.orders.append(kind)
        return True

    @property
    def searches(self) -> bool:
        return False

    def foreground_waits(self, _master: int, _terminal: int) -> bool:
        return self.waits

    def says(self, *parts: object) -> None:
        os.write(self.control, b"".join(b"%s\0" % str(part).encode() for part in parts))

    def close(self) -> None:
        for end in (self.socket, self._other):
            end.close()
        os.close(self.slave)
        if self.control >= 0:
            os.close(self.control)


@pytest.fixture
def bash() -> Iterator[Bash]:
    bash = Bash()
    yield bash
    bash.close()


@pytest.fixture
def shell(bash: Bash) -> Iterator[KeptShell]:
    guard, prompts = cast(Guard, bash), cast(PromptDetector, bash)
    shell = KeptShell(Loop(), guard, REQUEST, prompts, lambda: None, lambda _: None)
    bash.says("ready", 0, 0, "/workspace")
    hear(shell)
    yield shell
    shell._close_control()
    os.close(shell._master)


def hear(shell: KeptShell) -> None:
    """Lets the agent take what the shell has said."""
    shell._on_control(READ)


def read(shell: KeptShell, after: int = 0) -> Message:
    pages: list[Any] = []
    shell.read({"after": after, "limit": 10**6, "wait_ms": 0}, pages.append)
    (page,) = pages
    return cast(Message, page)


def test_a_command_from_its_start_to_its_end(shell: KeptShell, bash: Bash) -> None:
    assert read(shell)["run"]["ended"] == {"exit_code": 0, "cwd": "/workspace", "at": 0}
    shell.run(7, "echo hé")
    assert os.read(bash.control, 100) == "\0\x007\0echo hé\0".encode()
    assert read(shell)["run"] == {"number": 7, "syntax_error": "", "ended": None}
    with pytest.raises(AgentError, match="one at a time"):
        shell.run(8, "echo")
    bash.says("begin", 7, "", "")
    os.write(bash.slave, b"h\n")
    bash.says("ready", 7, 3, "/tmp")
    hear(shell)
    page = read(shell)
    assert base64.b64decode(page["data"]) == b"h\n"
    assert page["run"]["ended"] == {"exit_code": 3, "cwd": "/tmp", "at": 2}
    shell.run(8, "")


def test_reports_of_other_commands_say_nothing(shell: KeptShell, bash: Bash) -> None:
    shell.run(7, "x")
    bash.says("ready", 7, 0, "/forged")  # it has not begun
    bash.says("begin", 7, "", "")
    bash.says("ready", 6, 0, "/forged")
    bash.says("ready", 0, 0, "/forged")
    hear(shell)
    assert read(shell)["run"]["ended"] is None
    bash.says("ready", 7, 5, "/workspace")
    bash.says("ready", 7, 130, "/forged")  # a late interrupt
    hear(shell)
    assert read(shell)["run"]["ended"]["exit_code"] == 5


def test_wrong_syntax_has_an_exit_code_of_its_own(shell: KeptShell, bash: Bash) -> None:
    shell.run(7, "if")
    bash.says("begin", 7, "", "line 1: wrong")
    bash.says("ready", 7, 0, "/workspace")
    hear(shell)
    run = read(shell)["run"]
    assert (run["syntax_error"], run["ended"]["exit_code"]) == ("line 1: wrong", 2)


def test_the_end_waits_until_all_output_is_read(shell: KeptShell, bash: Bash) -> None:
    shell.run(7, "x")
    bash.says("begin", 7, "", "")
    hear(shell)
    shell.output.add(b"x" * MOST_BYTES)  # nobody has read so far
    os.write(bash.slave, b"last")
    bash.says("ready", 7, 0, "/workspace")
    hear(shell)
    page = read(shell)
    assert page["run"]["ended"] is None
    page = read(shell, page["next"])
    page = read(shell, page["next"]) if not page["data"] else page
    assert page["run"]["ended"]["at"] == MOST_BYTES + len(b"last")


def test_what_was_not_read_is_no_input_of_the_next_command(shell: KeptShell, bash: Bash) -> None:
    os.write(shell._master, b"left\n")
    shell.run(7, "cat")
    os.write(shell._master, b"new\n")
    assert os.read(bash.slave, 100) == b"new\n"


def test_only_a_command_waits_for_input(shell: KeptShell, bash: Bash) -> None:
    bash.waits = True
    assert read(shell)["waits"] is False
    shell.run(7, "read x")
    assert read(shell)["waits"] is False
    bash.says("begin", 7, "", "")
    hear(shell)
    assert read(shell)["waits"] is True
    bash.says("ready", 7, 0, "/workspace")
    hear(shell)
    assert read(shell)["waits"] is False


@pytest.mark.parametrize(
    "said", [("x", "y", "z", "w"), ("ready", "x", 0, "/"), ("ready", 7, -1, "")]
)
def test_nonsense_ends_the_shell(shell: KeptShell, bash: Bash, said: tuple[object, ...]) -> None:
    shell.run(7, "x")
    bash.says(*said)
    hear(shell)
    assert bash.orders == [b"k"]
    with pytest.raises(AgentError):
        shell.run(8, "x")


def test_a_lost_socket_leaves_the_program(shell: KeptShell, bash: Bash) -> None:
    shell.run(7, "exec sleep 9")
    bash.says("begin", 7, "", "")
    hear(shell)
    os.close(bash.control)
    bash.control = -1
    hear(shell)
    assert bash.orders == []
    assert read(shell)["run"]["ended"] is None
    with pytest.raises(AgentError):
        shell.run(8, "x")
