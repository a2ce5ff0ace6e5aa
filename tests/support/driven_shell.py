"""A shell of this host that is driven as a kept one, over a terminal and a socket."""

import os
import select
import signal
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from sandbox_agent.enforce.command_process import CONTROL_FD
from sandbox_agent.pty import device
from sandbox_agent.pty.shell_driver import Begun, Ready, Reports
from tests.support.limits import WAIT_SECONDS

# A busy machine may not have come to the command when it is interrupted first.
_MOST_INTERRUPTS = 30


class DrivenShell:
    """A kept shell, as a guard starts it.

    `told` makes what it is told to run a command with a number. `end` is what it is told at each
    report of a command's beginning and at each interrupt, if its input is the socket.
    """

    def __init__(
        self,
        argv: Sequence[str],
        variables: dict[str, str],
        directory: Path,
        told: Callable[[int, str], bytes],
        end: bytes = b"",
    ) -> None:
        self._socket, theirs = socket.socketpair()
        self.master, slave = device.open_pair(24, 80)
        device.make_plain(slave)
        tty, control, by_socket = os.ttyname(slave), theirs.fileno(), bool(end)

        def become() -> None:
            # Dash goes on ignoring what was ignored before it, as in what nohup runs.
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.setsid()
            os.close(os.open(tty, os.O_RDWR))  # becomes the controlling terminal
            if not by_socket:
                os.dup2(control, CONTROL_FD)

        self.process = subprocess.Popen(
            argv,
            env={"PATH": os.environ["PATH"], "TERM": "dumb", **variables},
            cwd=directory,
            stdin=control if by_socket else slave,
            stdout=slave,
            stderr=slave,
            close_fds=False,
            preexec_fn=become,
        )
        theirs.close()
        os.close(slave)
        self._told, self._end = told, end
        self._reports, self._number = Reports(), 0

    def tell(self, data: bytes) -> None:
        """Tells it something by the socket."""
        self._socket.sendall(data)

    def run(self, text: str) -> tuple[str, int, str]:
        """What a command prints, how it ends, and the error of its syntax."""
        self.start(text)
        begun, ready = self.until_ready()
        assert begun is not None
        return self.printed(), ready.status, begun.syntax_error

    def start(self, text: str) -> None:
        """Has it begin a command."""
        self._number += 1
        self.tell(self._told(self._number, text))

    def until_ready(self) -> tuple[Begun | None, Ready]:
        """Waits for the end of the command."""
        begun = None
        while True:
            for report in self._taken():
                if isinstance(report, Ready):
                    return begun, report
                begun = report
                self.tell(self._end)

    def until_begun(self) -> None:
        """Waits for the beginning of the command."""
        while not any(isinstance(report, Begun) for report in self._taken()):
            pass
        self.tell(self._end)

    def _taken(self) -> list[Begun | Ready]:
        """The next reports of the present run: the end of an earlier one may be told again."""
        readable, _, _ = select.select([self._socket], [], [], WAIT_SECONDS)
        assert readable, "the shell does not report"
        data = self._socket.recv(65536)
        assert data, "the shell has ended"
        return [each for each in self._reports.take(data) if each.number == self._number]

    def interrupt(self) -> None:
        """Interrupts it until it reports: it may lose one while it is busy."""
        for _ in range(_MOST_INTERRUPTS):
            device.interrupt(self.master)
            self.tell(self._end)
            if select.select([self._socket], [], [], 2)[0]:
                return
        pytest.fail("the command is not interrupted")

    def until_printed(self, text: str) -> None:
        """Waits until it has printed that."""
        data = ""
        while text not in data:
            readable, _, _ = select.select([self.master], [], [], WAIT_SECONDS)
            assert readable, f"{text} is not printed"
            data += os.read(self.master, 65536).decode()

    def printed(self) -> str:
        """What it has printed."""
        data = b""
        while True:
            try:
                data += os.read(self.master, 65536)
            except BlockingIOError:
                return data.decode()

    def close(self) -> None:
        """Kills it."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._socket.close()
        os.close(self.master)
