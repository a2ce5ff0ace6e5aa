"""A shell that runs one command after the other and keeps its state between them."""

import functools
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from sandbox_agent.core.loop import READ, WRITE, Loop
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.enforce import signalling
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.pty import device, posix_driver, shell_driver
from sandbox_agent.pty.prompt_detector import PromptDetector
from sandbox_agent.pty.request import Request
from sandbox_agent.pty.shell_driver import Begun, Ready, Reports
from sandbox_agent.pty.terminal import Terminal

# The end reason of a shell whose socket carries something else than reports.
FAILED = "shell_failed"
_KILL = 9
# When, and how often, it is looked whether an interrupt has reached the program that it is for.
_AGAIN_SECONDS = 0.1
_AGAIN = 5
_READ_BYTES = 65536


class _Driver(Protocol):
    """What the shell is told."""

    def begin(self) -> bytes:
        """At its start."""

    def run(self, number: int, text: str) -> bytes:
        """For a command."""

    def end(self) -> bytes:
        """When the command has begun, and after each interrupt."""


class _Run:
    """The run with that number. `at`: how many bytes were printed when it had ended."""

    def __init__(self, number: int, begun: Begun | None = None) -> None:
        self.number = number
        self.begun = begun
        self.ready: Ready | None = None
        self.at: int | None = None
        # It is to be interrupted as soon as it begins.
        self.interrupted = False

    def shown(self) -> Message:
        """The run for the control plane."""
        ended = None
        error = self.begun.syntax_error if self.begun is not None else ""
        if self.ready is not None and self.at is not None:
            status = shell_driver.SYNTAX_STATUS if error else self.ready.status
            ended = {"exit_code": status, "cwd": self.ready.directory, "at": self.at}
        return {"number": self.number, "syntax_error": error, "ended": ended}


class KeptShell(Terminal):
    """Runs commands in its shell, and learns from it by a socket how each has ended.

    Run 0 is the start of the shell. Raises: as `Terminal` does.
    """

    def __init__(
        self,
        loop: Loop,
        guard: Guard,
        request: Request,
        prompts: PromptDetector,
        on_progress: Callable[[], None],
        on_end: Callable[[Terminal], None],
    ) -> None:
        self._run = _Run(0, begun=Begun(0, ""))
        self._reports = Reports()
        self._driver: _Driver = posix_driver if request.kept == "sh" else shell_driver
        self._unsent = self._driver.begin()
        try:
            self._control, its_control = socket.socketpair()
        except OSError:
            guard.close()
            raise
        try:
            super().__init__(
                *(loop, guard, request, prompts, on_progress, on_end), its_control.fileno()
            )
        except OSError:
            self._control.close()
            raise
        finally:
            its_control.close()
        self._control.setblocking(False)
        self._send()

    # Commands.

    def run(self, number: int, text: str) -> None:
        """Runs a command. Raises: AgentError if another one runs, or the shell has ended."""
        self._check_free()
        if self._run.ready is None or self._input or self._control.fileno() < 0:
            raise AgentError("busy", "a command of this shell runs: one at a time")
        self._run = _Run(number)
        device.make_plain(self._master)
        device.drop_input(self._master)
        self._unsent += self._driver.run(number, text)
        self._send()
        self._answer()  # the reader watches a command more closely

    def interrupt(self, number: int, *, kill: bool) -> bool:
        """Interrupts the run with that number, or kills its foreground; False if it can't.

        The shell itself is not killed. Raises: AgentError if that run has ended.
        """
        self._check_free()
        run = self._run
        if run.number != number or run.ready is not None:
            raise AgentError("conflict", "the command has ended")
        if run.begun is None and not kill:
            run.interrupted = True
            return True
        with suppress(OSError):
            group = self._foreground()
            if not kill:
                self._interrupt()
                if self._is_starting(group):
                    self.tree.after(_AGAIN_SECONDS, functools.partial(self._again, run, _AGAIN))
                return True
            if group is not None:
                signalling.kill_as(self.tree.guard.uid, -group, _KILL)
                return True
        return False

    def _again(self, run: _Run, left: int) -> None:
        """Interrupts a program that the shell was just starting when the interrupt came.

        The shell, or the copy of it that executes the program, may have received it in its place.
        A shell that is still busy with the command itself at the end gets it once more.
        """
        if run is not self._run or run.ready is not None or self._ended is not None:
            return
        with suppress(OSError):
            if not left or not self._is_starting(self._foreground()):
                self._interrupt()
            else:
                self.tree.after(_AGAIN_SECONDS, functools.partial(self._again, run, left - 1))

    def _interrupt(self) -> None:
        """Raises: OSError."""
        device.interrupt(self._master)
        self._ask_for_end()

    def _ask_for_end(self) -> None:
        self._unsent += self._driver.end()
        self._send()

    def _foreground(self) -> int | None:
        """The process group in the foreground; None if it is the shell. Raises: OSError."""
        group = os.tcgetpgrp(self._master)
        return None if group <= 1 or group == device.session_leader(self._master) else group

    def _is_starting(self, group: int | None) -> bool:
        """Whether the foreground is the shell, or a copy of it. Raises: OSError."""
        return group is None or _name(group) == _name(device.session_leader(self._master))

    def _on_control(self, events: int) -> None:
        if events & WRITE:
            self._send()
        if events & READ:
            self._receive()

    def _send(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[self._control.send(self._unsent) :]
        except BlockingIOError:
            pass
        except OSError:  # the shell has closed it, and ends
            self._unsent = b""
        if self._control.fileno() >= 0:
            wanted = READ | (WRITE if self._unsent else 0)
            self._loop.watch(self._control.fileno(), wanted, self._on_control)

    def _receive(self) -> None:
        try:
            data = self._control.recv(_READ_BYTES)
            reports = self._reports.take(data)
        except BlockingIOError:
            return
        except OSError:
            data, reports = b"", []
        except ValueError:
            self.kill(FAILED)
            data, reports = b"", []
        for report in reports:
            self._on_report(report)
        if not data:  # another program took the shell's place, or it ends
            self._close_control()

    def _on_report(self, report: Begun | Ready) -> None:
        run = self._run
        if report.number != run.number or run.ready is not None:
            return  # an interrupt came when it had ended already
        if isinstance(report, Begun):
            run.begun = report
            self._ask_for_end()
            if run.interrupted:
                self.interrupt(run.number, kill=False)
            return
        if run.begun is None:
            return
        run.ready = report
        self._fill()
        if run.at is not None:
            self._answer()

    def _close_control(self) -> None:
        if self._control.fileno() >= 0:
            self._loop.unwatch(self._control.fileno())
            self._control.close()

    # What a terminal does, for commands.

    def _fill(self) -> bool:
        done = super()._fill()
        run = self._run
        # The kernel has passed on all that was printed before the report.
        if done and run.ready is not None and run.at is None:
            run.at = self.output.total
        return done

    def _page(self, after: int, limit: int) -> Message:
        return {**super()._page(after, limit), "run": self._run.shown()}

    def _waits(self) -> bool:
        run = self._run
        if run.begun is None or run.ready is not None or self._input or self._hung_up:
            return False
        printed = self.output.total
        waits = self._prompts.foreground_waits(self._master, self._device)
        return waits and self._fill() and self.output.total == printed

    def _on_gone(self) -> None:
        self._close_control()
        super()._on_gone()


def _name(pid: int) -> bytes:
    """What a process executes, in short. Raises: OSError if it has ended."""
    with open(f"/proc/{pid}/comm", "rb") as file:
        return file.read()
