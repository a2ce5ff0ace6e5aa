"""One running command as the agent sees it: its tree, streams, time-out and end."""

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from sandbox_agent.core import params as given
from sandbox_agent.core.loop import READ, Loop
from sandbox_agent.core.output import STDERR, STDOUT, Output
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.tree import Tree
from sandbox_agent.run.feed import Done, Feed

# The pipes are read for at most this long after the command's end, for leftover data and processes.
DRAIN_SECONDS = 0.1
_READ_BYTES = 65536


class Request(NamedTuple):
    """The command that the control plane asked for, as its `exec` request describes it."""

    command_id: str
    plan: Plan
    stdin: bytes | None
    stdin_open: bool
    timeout_ms: int | None
    background: bool
    collect: bool = False
    unread: bool = False
    # Whether standard error goes where standard output goes.
    merge: bool = False


def parse_request(params: Message, plan: Plan) -> Request:
    """The request in the parameters of `exec`. Pure. Raises: AgentError."""
    stdin, timeout = params.get("stdin"), params.get("timeout_ms")
    return Request(
        command_id=given.text(params, "command_id"),
        plan=plan,
        stdin=None if stdin is None else given.data(params, "stdin"),
        stdin_open=given.flag(params, "stdin_open"),
        timeout_ms=None
        if timeout is None
        else given.number(params, "timeout_ms", 0, given.MOST_MS),
        background=given.flag(params, "background"),
        collect=params.get("collect") is True,
        unread=params.get("unread") is True,
        merge=params.get("merge") is True,
    )


class Command:
    """A command from its preparation until nothing of it is left.

    A new command is ready; it runs from `go` on. It owns its guard until it has ended. `on_end` is
    called once, with the command, when its result is complete; `on_progress` is called whenever
    there is new output. Raises: OSError from the constructor if the command can't be prepared; the
    guard is then released.
    """

    def __init__(
        self,
        loop: Loop,
        guard: Guard,
        request: Request,
        output: Output,
        on_progress: Callable[["Command"], None],
        on_end: Callable[["Command"], None],
    ) -> None:
        self.id = request.command_id
        # Whether a caller will come for its output.
        self.unread = request.unread or not request.background
        # Whether the exit event carries the output.
        self.collect = request.collect
        self.output = output
        self.ended = False
        self._loop = loop
        self._on_progress = on_progress
        self._on_end = on_end
        self._streams: dict[int, str] = {}
        self._stdin: int | None = None
        self._feed: Feed | None = None
        self._request = request
        self.tree = self._prepare(guard, request)

    def go(self) -> None:
        """Runs the program. The guard gets `go` last: if anything fails before, nothing runs."""
        request = self._request
        if request.timeout_ms is not None:
            self.tree.after(request.timeout_ms / 1000, lambda: self.cancel("timeout"))
        for fd in self._streams:
            self._loop.watch(fd, READ, functools.partial(self._on_output, fd))
        if self._stdin is not None:
            data, stays_open = request.stdin or b"", request.stdin_open
            self._feed = Feed(self._loop, self._stdin, data, stays_open=stays_open)
        self.tree.go()

    def drop(self) -> None:
        """Ends a command that never got its `go`; nothing calls back."""
        self.tree.drop()
        for fd in list(self._streams):
            self._close_stream(fd)
        if self._feed is not None:
            self._feed.close()
        elif self._stdin is not None:
            os.close(self._stdin)

    def _prepare(self, guard: Guard, request: Request) -> Tree:
        pipes: list[int] = []
        stdin_write: int | None = None
        try:
            if request.stdin is None and not request.stdin_open:
                stdin = os.open(os.devnull, os.O_RDONLY)
            else:
                stdin, stdin_write = os.pipe2(os.O_CLOEXEC)
                pipes.append(stdin_write)
            pipes.append(stdin)
            out_read, out_write = os.pipe2(os.O_CLOEXEC)
            pipes += [out_read, out_write]
            streams = {out_read: STDOUT}
            err_write = out_write
            if not request.merge:
                err_read, err_write = os.pipe2(os.O_CLOEXEC)
                pipes += [err_read, err_write]
                streams[err_read] = STDERR
            ends = Pipes(stdin, out_write, err_write)
        except OSError:
            guard.close()
            _close_all(pipes)
            raise
        try:
            tree = Tree(self._loop, guard, self.id, request.plan, ends, self._on_left, self._finish)
        except OSError:
            _close_all(pipes)
            raise
        _close_all(set(ends.descriptors))
        self._streams = streams
        for fd in self._streams:
            os.set_blocking(fd, False)
        self._stdin = stdin_write
        return tree

    # Streams

    def _on_output(self, fd: int, _events: int) -> None:
        self._read(fd, rounds=4)

    def _read(self, fd: int, rounds: int) -> None:
        """Reads available data, at most `rounds` times, so that other commands are served, too."""
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
        if not self._streams and self.tree.first_ended:
            # The first process has ended and no one can write any more, so there is nothing to wait
            # for.
            self.tree.kill()

    def _close_stream(self, fd: int) -> None:
        self._loop.unwatch(fd)
        os.close(fd)
        del self._streams[fd]

    def feed(self, data: bytes, close: bool, done: Done) -> None:
        """Feeds standard input, as `Feed.write` does."""
        if self._feed is None:
            done(AgentError("conflict", "the command has no standard input"))
        else:
            self._feed.write(data, close, done)

    def forget_caller(self) -> None:
        """Drops the caller of `feed`; the exit event will not carry the output."""
        self.collect = False
        if self._feed is not None:
            self._feed.forget_caller()

    # Ending

    def send_signal(self, number: int) -> bool:
        """Signals the command's process group; False when too many signals wait already."""
        return self.tree.signal(number)

    def cancel(self, reason: str) -> None:
        """Ends the whole tree with TERM, then KILL."""
        self.tree.cancel(reason)

    def kill(self, reason: str) -> None:
        """Kills the whole tree at once, even while only its remaining output is read."""
        self.tree.kill(reason)

    def _on_left(self) -> None:
        """Gives the remaining processes a moment to write after the first one has ended."""
        if self._streams:
            self.tree.after(DRAIN_SECONDS, self.tree.kill)
        else:
            self.tree.kill()

    def _finish(self) -> None:
        """Ends the command: no process is left, but its pipes still hold its last output."""
        for fd in list(self._streams):
            while fd in self._streams:
                before = self.output.total
                self._read(fd, rounds=16)
                if fd in self._streams and self.output.total == before:
                    self._close_stream(fd)
        if self._feed is not None:
            self._feed.close()
        if self.tree.failure is not None:
            stream = STDOUT if self._request.merge else STDERR
            self.output.add(stream, f"{self.tree.failure}\n".encode())
        self.ended = True
        self._on_end(self)

    def result(self) -> dict[str, Any]:
        """The command's result; complete once it has ended."""
        return {
            **self.tree.result(),
            "timed_out": self.tree.reason == "timeout",
            "truncated": self.output.cut > 0,
            "cut_bytes": self.output.cut,
            "stored_bytes": self.output.stored,
            "output_bytes": self.output.total,
        }


def _close_all(descriptors: Iterable[int]) -> None:
    for fd in descriptors:
        os.close(fd)
