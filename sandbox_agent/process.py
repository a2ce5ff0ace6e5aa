"""One running command as the agent sees it: its guard, streams, time-out and end."""

import errno
import functools
import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sandbox_agent.guard import Guard
from sandbox_agent.guard_process import Pipes, Plan
from sandbox_agent.loop import READ, WRITE, Loop, Timer
from sandbox_agent.output import STDERR, STDOUT, Output

# A tree that was asked to end is killed after this long.
KILL_AFTER_SECONDS = 2.0
# What a command left in its pipes, or leftovers still write, is read for at most this long.
DRAIN_SECONDS = 0.1
_ORDER_AGAIN_SECONDS = 0.05
_READ_BYTES = 65536
# Input that the command does not read is held up to here, then refused.
_MOST_STDIN_BYTES = 1024 * 1024


class Request(NamedTuple):
    """What the control plane asked to run."""

    command_id: str
    plan: Plan
    stdin: bytes | None
    stdin_open: bool
    timeout_ms: int | None
    background: bool


class Usage(NamedTuple):
    """How the first process ended, and what it used."""

    status: int
    cpu_us: int
    max_rss_bytes: int


class Command:
    """A command from its start to the moment when nothing of it is left.

    The guard is its own until it has ended. `on_end` is called once, with the command,
    when its result is complete; `on_progress` whenever there is new output. Raises: OSError
    from the constructor where the command can't be started; the guard is then let go of.
    """

    def __init__(
        self,
        loop: Loop,
        guard: Guard,
        request: Request,
        output_bytes: int,
        on_progress: Callable[["Command"], None],
        on_end: Callable[["Command"], None],
    ) -> None:
        self.id = request.command_id
        self.background = request.background
        self.output = Output(output_bytes, keep_tail=request.background)
        self.ended = False
        self.denied: str | None = None
        self._loop = loop
        self.guard = guard
        self._on_progress = on_progress
        self._on_end = on_end
        self._started = time.monotonic()
        self._usage: Usage | None = None
        self._failure: tuple[int, str] | None = None
        self._reason: str | None = None
        self._leftovers = 0
        self._gone = False
        self._timers: list[Timer] = []
        self._streams: dict[int, str] = {}
        self._stdin = bytearray(request.stdin or b"")
        self._stdin_fd: int | None = None
        self._stdin_closing = not request.stdin_open
        self._start(guard, request)
        if request.timeout_ms is not None:
            self._after(request.timeout_ms / 1000, lambda: self.cancel("timeout"))

    def _start(self, guard: Guard, request: Request) -> None:
        pipes: list[int] = []
        try:
            if request.stdin is None and not request.stdin_open:
                stdin = os.open(os.devnull, os.O_RDONLY)
            else:
                stdin, self._stdin_fd = os.pipe2(os.O_CLOEXEC)
                pipes.append(self._stdin_fd)
            pipes.append(stdin)
            out_read, out_write = os.pipe2(os.O_CLOEXEC)
            pipes += [out_read, out_write]
            err_read, err_write = os.pipe2(os.O_CLOEXEC)
            pipes += [err_read, err_write]
            theirs = Pipes(stdin, out_write, err_write)
            guard.start(request.command_id, request.plan, theirs)
        except OSError:
            guard.close()
            for fd in pipes:
                os.close(fd)
            raise
        for fd in theirs:
            os.close(fd)
        self._streams = {out_read: STDOUT, err_read: STDERR}
        for fd in self._streams:
            os.set_blocking(fd, False)
            self._loop.watch(fd, READ, functools.partial(self._on_output, fd))
        self._loop.watch(self.guard.socket.fileno(), READ, lambda _events: self._on_guard())
        if self._stdin_fd is not None:
            os.set_blocking(self._stdin_fd, False)
            self._write_stdin()

    # Streams

    def _on_output(self, fd: int, _events: int) -> None:
        self._read(fd, rounds=4)

    def _read(self, fd: int, rounds: int) -> None:
        """Reads what is there, a few rounds at a time: other commands want their turn too."""
        grown = False
        for _ in range(rounds):
            try:
                data = os.read(fd, _READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                self._close_stream(fd)
                break
            self.output.add(self._streams[fd], data)
            grown = True
        if grown:
            self._on_progress(self)
        if not self._streams and self._usage and not self._gone:
            # The first process has ended and nobody can write any more: no need to wait.
            self._order(b"k")

    def _close_stream(self, fd: int) -> None:
        self._loop.unwatch(fd)
        os.close(fd)
        del self._streams[fd]

    def write_stdin(self, data: bytes, close: bool) -> bool:
        """Queues input; False when the command's standard input is closed or its queue is full."""
        if self._stdin_fd is None or self._stdin_closing:
            return False
        if len(self._stdin) + len(data) > _MOST_STDIN_BYTES:
            return False
        self._stdin += data
        self._stdin_closing = close
        self._write_stdin()
        return True

    def _write_stdin(self) -> None:
        if self._stdin_fd is None:
            return
        try:
            while self._stdin:
                written = os.write(self._stdin_fd, self._stdin[:_READ_BYTES])
                del self._stdin[:written]
        except BlockingIOError:
            self._loop.watch(self._stdin_fd, WRITE, lambda _events: self._write_stdin())
            return
        except BrokenPipeError:
            self._stdin_closing = True
        self._loop.unwatch(self._stdin_fd)
        if self._stdin_closing:
            self._close_stdin()

    def _close_stdin(self) -> None:
        if self._stdin_fd is not None:
            self._loop.unwatch(self._stdin_fd)
            os.close(self._stdin_fd)
            self._stdin_fd = None
            self._stdin.clear()

    # Ending

    def send_signal(self, number: int) -> bool:
        """Signals the command's process group; False when too many signals wait already."""
        return self.guard.order(b"s%d" % number)

    def cancel(self, reason: str) -> None:
        """TERM to the whole tree, KILL to what is left after `KILL_AFTER_SECONDS`."""
        if self._reason is None and self._usage is None:
            self._reason = reason
            self._order(b"t")
            self._after(KILL_AFTER_SECONDS, lambda: self._order(b"k"))

    def _order(self, order: bytes) -> None:
        """Gives an order that must not be lost, even behind a flood of signals."""
        if not self.guard.order(order):
            self._after(_ORDER_AGAIN_SECONDS, lambda: self._order(order))

    def _after(self, seconds: float, callback: Callable[[], None]) -> None:
        self._timers.append(self._loop.after(seconds, callback))

    def _on_guard(self) -> None:
        while not self._gone:
            try:
                report = self.guard.receive()
            except BlockingIOError:
                return
            if report[:1] == b"X":
                self._on_failure(json.loads(report[1:]))
            elif report[:1] == b"E":
                self._on_first_ended(*map(int, report[1:].split()))
            elif report[:1] == b"G":
                self._leftovers = int(report[1:])
                self._finish()
            else:
                # Its tree is now out of anybody's control: the sandbox ends rather than go on.
                raise SystemExit(f"the guard of command {self.id} died")

    def _on_failure(self, report: dict[str, Any]) -> None:
        if "denied" in report:
            self.denied = str(report["denied"])
        else:
            self._failure = (int(report["errno"]), str(report["what"]))

    def _on_first_ended(self, status: int, cpu_us: int, max_rss_bytes: int, left: int) -> None:
        self._usage = Usage(status, cpu_us, max_rss_bytes)
        if not left:
            self._finish()
        elif self._streams:
            self._after(DRAIN_SECONDS, lambda: self._order(b"k"))
        else:
            self._order(b"k")

    def _finish(self) -> None:
        """Nothing of the command is left: what its pipes still hold is all there will be."""
        self._gone = True
        for timer in self._timers:
            timer.cancel()
        for fd in list(self._streams):
            while fd in self._streams:
                before = self.output.total
                self._read(fd, rounds=16)
                if fd in self._streams and self.output.total == before:
                    self._close_stream(fd)
        self._close_stdin()
        self._loop.unwatch(self.guard.socket.fileno())
        if self._failure is not None:
            number, what = self._failure
            self.output.add(STDERR, f"cannot {what}: {os.strerror(number)}\n".encode())
        self.ended = True
        self._on_end(self)

    def result(self) -> dict[str, Any]:
        """What the command came to; complete once it has ended."""
        usage = self._usage or Usage(0, 0, 0)
        exit_code, signal_name = _exit_status(usage.status)
        if self._failure is not None:
            exit_code = 127 if self._failure[0] == errno.ENOENT else 126
        return {
            "exit_code": exit_code,
            "signal": signal_name,
            "timed_out": self._reason == "timeout",
            "reason": self._reason,
            "truncated": self.output.truncated,
            "output_bytes": self.output.total,
            "leftover_killed": self._leftovers,
            "duration_us": int((time.monotonic() - self._started) * 1_000_000),
            "cpu_us": usage.cpu_us,
            "max_rss_bytes": usage.max_rss_bytes,
        }


def _exit_status(status: int) -> tuple[int, str | None]:
    """Exit code and signal name of a wait status; a signal counts as 128 + its number."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return 128 + number, signal.Signals(number).name
        except ValueError:
            return 128 + number, f"SIG{number}"
    return os.WEXITSTATUS(status), None
