"""One terminal as the agent sees it: its tree, device, limits and end."""

import base64
import os
import signal
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from sandbox_agent.core import params as given
from sandbox_agent.core.loop import READ, WRITE, Loop, Timer
from sandbox_agent.core.outputs import Reply
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import CHUNK_BYTES, Message
from sandbox_agent.enforce.command_process import Pipes
from sandbox_agent.enforce.guard import Guard
from sandbox_agent.enforce.tree import Tree
from sandbox_agent.pty import device, gate
from sandbox_agent.pty.kept_files import KeptFiles
from sandbox_agent.pty.prompt_detector import Program, PromptDetector
from sandbox_agent.pty.request import Request
from sandbox_agent.pty.unread_output import UnreadOutput
from sandbox_agent.pty.untaken_input import UntakenInput

_READ_BYTES = 65536
# How often a terminal is read in one go, before others are served.
_ROUNDS = 16


class _Reader(NamedTuple):
    """A caller that waits for bytes beyond `after`."""

    after: int
    limit: int
    reply: Reply
    timer: Timer


class Terminal:
    """A program and its terminal, until nothing of the program is left.

    `on_progress` is called when there is new output; `on_end` is called once, when there can be no
    more. Raises: OSError from the constructor if the program can't be started; the guard is then
    released.
    """

    def __init__(
        self,
        loop: Loop,
        guard: Guard,
        request: Request,
        prompts: PromptDetector,
        on_progress: Callable[[], None],
        on_end: Callable[["Terminal"], None],
        control: int | None = None,
    ) -> None:
        """`control`: a socket for the program of a terminal that shows its output only.

        A POSIX shell has it as its standard input.
        """
        self.id = request.terminal_id
        self._loop = loop
        self._request = request
        self._prompts = prompts
        self._on_progress = on_progress
        self._on_end = on_end
        self.output = UnreadOutput()
        self._input = UntakenInput(loop)
        self._kept = KeptFiles({})
        # The program that waits at the prompt when the first line is sent. It can only be the tool,
        # so no program that the tool starts later is mistaken for it.
        self._program: Program | None = None
        self._reader_program: Program | None = None
        self._reader: _Reader | None = None
        self._ended: dict[str, Any] | None = None
        self._used = time.monotonic()
        try:
            self._master, slave = device.open_pair(request.rows, request.columns)
        except OSError:
            guard.close()
            raise
        if control is not None:
            device.make_plain(slave)
        pipes = Pipes(slave, slave, slave, control)
        if control is not None and request.kept == "sh":
            pipes = Pipes(control, slave, slave)
        self._device = os.fstat(slave).st_rdev
        self._watched = 0
        self._hung_up = False
        try:
            self.tree = Tree(
                loop,
                guard,
                self.id,
                request.plan,
                pipes,
                self._on_left,
                self._on_gone,
            )
        except OSError:
            os.close(self._master)
            raise
        finally:
            os.close(slave)
        self.tree.go()
        self._watch()
        self.tree.after(request.lifetime_ms / 1000, lambda: self.cancel("session_timeout"))
        self.tree.after(request.idle_ms / 1000, self._check_idle)

    # Output

    def read(self, params: Message, reply: Reply) -> None:
        """Answers with output from `after` on, once there is some or the time is up.

        Raises: AgentError, also if the output no longer has that offset, or does not have it yet.
        """
        after = given.number(params, "after")
        limit = min(given.number(params, "limit", 1), CHUNK_BYTES)
        wait = given.number(params, "wait_ms", 0, given.MOST_MS) / 1000
        self._used = time.monotonic()
        self._answer()  # an earlier caller is gone
        self._check_offset(after)
        self._fill()
        if self.output.total > after or self._ended is not None or not wait:
            reply(self._page(after, limit))
        else:
            self._reader = _Reader(after, limit, reply, self._loop.after(wait, self._answer))
        self._watch()

    def _check_offset(self, after: int) -> None:
        try:
            self.output.take(after, 0)
        except ValueError as error:
            raise AgentError("validation_error", f"bad parameters: {error}") from None

    def _page(self, after: int, limit: int) -> Message:
        data = self.output.take(after, limit)
        position = after + len(data)
        over = self._ended is not None and position == self.output.total
        return {
            "data": base64.b64encode(data).decode(),
            "next": position,
            "waits": not data and not over and self._waits(),
            "line_bytes": self._line_bytes(),
            "ended": self._ended if over else None,
        }

    def _waits(self) -> bool:
        """Whether the program has taken every line, has printed all, and waits for another line.

        Everything that it printed before it began to wait can be read by the time it is found
        waiting.
        """
        if self._input or self._hung_up:
            return False
        printed = self.output.total
        found = self._prompts.waiting_program(self._master, self._device, self._program)
        waits = found is not None and self._fill() and self.output.total == printed
        if waits:
            self._reader_program = found
        return waits

    def _answer(self) -> None:
        if self._reader is not None:
            reader, self._reader = self._reader, None
            reader.timer.cancel()
            self._used = time.monotonic()
            reader.reply(self._page(reader.after, reader.limit))

    def forget_callers(self) -> None:
        """Drops the callers that wait, after the connection was lost."""
        self._input.forget_caller()
        if self._reader is not None:
            self._reader.timer.cancel()
            self._reader = None

    def _fill(self) -> bool:
        """Reads available output up to the limit; returns whether that was all."""
        if self._hung_up:
            return True
        for _ in range(_ROUNDS):
            room = self.output.room
            if not room:
                return False
            try:
                data = os.read(self._master, min(room, _READ_BYTES))
            except BlockingIOError:
                return True
            except OSError:  # no process has the other end open
                data = b""
            if not data:
                self._hung_up = True
                return True
            self.output.add(data)
            self._on_progress()
        return False

    def _on_ready(self, events: int) -> None:
        if events & WRITE:
            self._input.write(self._master)
        if events & READ:
            self._fill()
            if self._reader is not None and self.output.total > self._reader.after:
                self._answer()
        self._watch()

    def _watch(self) -> None:
        """Watches the device for the events that are possible now."""
        wanted = 0
        if not self._hung_up and not self.tree.gone:
            wanted = (READ if self.output.room else 0) | (WRITE if self._input else 0)
        if wanted == self._watched:
            return
        self._watched = wanted
        if wanted:
            self._loop.watch(self._master, wanted, self._on_ready)
        else:
            self._loop.unwatch(self._master)

    # Input

    def send(self, command: str, text: str, files: dict[str, bytes]) -> int:
        """Writes one line; returns how many bytes had been printed before it.

        `files` are the contents of the files that the line names, by path. Raises: AgentError; then
        nothing was written.
        """
        line = self._line(command, text)
        if self._input:
            raise AgentError("busy", "the tool has not read the previous line")
        if not self._fill():
            raise AgentError("busy", "read the tool's output first")
        kept = KeptFiles(files)
        self._kept.release()  # the tool has read another line since then
        self._kept = kept
        self._used = time.monotonic()
        self._program = self._program or self._reader_program
        self._input.add(line)
        self._input.write(self._master)
        self._watch()
        return self.output.total

    def write(self, data: bytes, reply: Reply) -> None:
        """Writes bytes as they are; answers once the kernel has taken them.

        Raises: AgentError, also if the terminal takes lines only; then nothing was written.
        """
        self._check_free()
        self._input.check(data)
        self._used = time.monotonic()
        self._input.add(data)
        self._input.write(self._master)
        self._input.when_taken(reply)
        self._watch()

    def resize(self, rows: int, columns: int) -> None:
        """Gives the terminal that size; the kernel tells the program. Raises: AgentError."""
        self._check_free()
        device.resize(self._master, rows, columns)

    def _check_free(self) -> None:
        """Raises: AgentError if the terminal has ended, or takes lines only."""
        if self._ended is not None or self._hung_up:
            raise AgentError("conflict", "the terminal has ended")
        if self._request.commands is not None:
            message = "this terminal takes declared lines only"
            raise AgentError("permission_denied", message, "unknown-tool")

    def _line(self, command: str, text: str) -> bytes:
        request = self._request
        if self._ended is not None or self._hung_up:
            raise AgentError("conflict", "the terminal has ended")
        if request.commands is None:
            return text.encode()
        try:
            data = gate.check(command, text, request.commands, request.sanitize, self._line_bytes())
        except gate.RefusedError as error:
            raise AgentError("permission_denied", str(error), error.rule) from None
        return data + request.terminator

    def _line_bytes(self) -> int:
        """The most bytes that a line may have now, without its terminator."""
        most = self._request.max_line_bytes
        if not self._hung_up and device.cooked(self._master):
            # The kernel would cut a longer line, and the program would read the rest as a separate
            # line.
            most = min(most, device.MOST_COOKED_BYTES - len(self._request.terminator))
        return most

    # Ending

    def signal(self, number: int) -> bool:
        """Signals the program's process group; False when too many signals wait already."""
        return self.tree.signal(number)

    def cancel(self, reason: str) -> None:
        """Ends the whole tree with TERM, then KILL; HUP announces the loss of the terminal."""
        if self.tree.cancel(reason):
            self.tree.signal(signal.SIGHUP)

    def kill(self, reason: str) -> None:
        """Kills the whole tree at once."""
        self.tree.kill(reason)

    def _check_idle(self) -> None:
        left = self._used + self._request.idle_ms / 1000 - time.monotonic()
        if self._reader is not None:
            left = self._request.idle_ms / 1000
        if left <= 0:
            self.cancel("idle_timeout")
        else:
            self.tree.after(left, self._check_idle)

    def _on_left(self) -> None:
        """Kills what is left after the program's end: it has lost the terminal."""
        self.tree.kill()

    def _on_gone(self) -> None:
        self._watch()  # the tree is gone, so no event is possible
        if not self._hung_up:
            self._drain()
        self._input.close()
        self._kept.release()
        if self.tree.failure is not None:
            self.output.add(f"{self.tree.failure}\r\n".encode())
        os.close(self._master)
        self._on_end(self)

    def _drain(self) -> None:
        """Reads what the kernel still holds, even slightly above the limit."""
        try:
            while data := os.read(self._master, _READ_BYTES):
                self.output.add(data)
                self._on_progress()
        except OSError:  # the error is the same when nothing is left
            pass
        self._hung_up = True

    def result(self) -> dict[str, Any]:
        """The program's result; complete once it has ended."""
        return {**self.tree.result(), "output_bytes": self.output.total}

    def end(self, outcome: dict[str, Any]) -> None:
        """Stores the outcome and answers the reader, after the exit event."""
        self._ended = outcome
        self._answer()

    @property
    def all_read(self) -> bool:
        """Whether a caller has read everything, including the end."""
        return self._ended is not None and self.output.start == self.output.total
