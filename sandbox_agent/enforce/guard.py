"""The guard: a small process that owns one command and everything that the command starts.

It runs as root without CAP_KILL in its own Landlock domain, so that one command can't signal, trace
or read another. It reaps its whole tree: when `waitpid` reports no children, nothing of the command
is left, and the guard is free for the next command.
"""

import contextlib
import functools
import marshal
import os
import signal
import socket
from collections.abc import Callable
from typing import NoReturn

from sandbox_agent.core.limits import Meter
from sandbox_agent.enforce import guard_messages, spawn
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.exec_record import ExecRecorder, Source
from sandbox_agent.enforce.guard_process import run
from sandbox_agent.enforce.guards import compiled
from sandbox_agent.enforce.guards.forked import Forked
from sandbox_agent.enforce.guards.setup import Setup
from sandbox_agent.enforce.reads import broker
from sandbox_agent.enforce.reads.reports import Reports


class Guard:
    """The agent's side of one guard. Raises: OSError if no process can be created."""

    def __init__(
        self,
        setup: Setup,
        recorder: ExecRecorder,
        meter: Meter,
        connect: Callable[[socket.socket], Reports] | None = None,
        waiting: Forked | None = None,
    ) -> None:
        """`connect` takes the reports of a broker, which is created before the guard if it is set.

        The guard is then the broker's child. `waiting` is a process that has got that setup and
        becomes the guard; without one, it is forked here.
        """
        self._reports = None
        if connect is not None:
            forked, reports = _below_broker(setup)
            self._reports = connect(reports)
        else:
            forked = waiting or Forked(functools.partial(run, setup))
        self.pid, self.socket = forked.pid, forked.socket
        # Carries what starts a command: its plan, then the word to go.
        self._starter = forked.starter
        # The uid of its commands' processes, and how many processes that uid may have.
        self.uid, self.processes = setup.uid, setup.processes
        self._on_end: Callable[[], None] | None = None
        self._ended = False
        self._number = 0
        self.meter = meter
        self._recorder = recorder
        self.compiled = setup.compiled
        self._profile = setup.profile
        self._source = Source(setup.profile.executable, self.pid)
        self._listener: int | None = None

    def prepare(self, command_id: str, plan: Plan, pipes: Pipes) -> None:
        """Gives the guard its next command, which waits for `go`.

        Raises: OSError if the guard is gone.
        """
        self._number += 1
        held = self.compiled or spawn.applies(self._profile, plan)
        self._source.begin(command_id, held=held)
        if self._reports is not None:
            self._reports.begin(self._number, command_id, self._source)
        # The plan goes into a memory file, because it may be larger than one message.
        document = os.memfd_create("plan", os.MFD_CLOEXEC)
        try:
            whole = compiled.document(plan) if self.compiled else marshal.dumps(tuple(plan))
            os.write(document, whole)
            message = guard_messages.plan(self._number)
            socket.send_fds(self._starter, [message], [*pipes.descriptors, document])
        finally:
            os.close(document)

    def go(self) -> None:
        """Lets the prepared command execute its program."""
        if self._source.held is not None:
            self._recorder.go(self._source)
            return
        # If the guard is gone, that is reported as for any running command.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._starter.send(guard_messages.go(self._number))

    def order(self, kind: bytes) -> bool:
        """Sends an order for the current command; returns False if too many orders wait already.

        A command that has ended needs no order.
        """
        if self.closed:
            return True
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            try:
                self.socket.send(guard_messages.order(kind, self._number))
            except BlockingIOError:
                return False
        return True

    def receive(self) -> bytes:
        """The next report; empty if the guard is gone. Raises: BlockingIOError if there is none."""
        if self._reports is not None:
            self._reports.take()  # what the broker has said of a command comes before its end
        while True:
            try:
                most = guard_messages.MOST_BYTES
                report, descriptors, _, _ = socket.recv_fds(self.socket, most, 1)
            except ConnectionResetError:  # it died with unread orders
                return b""
            if report != guard_messages.LISTENER or len(descriptors) != 1:
                return report
            (self._listener,) = descriptors
            os.set_inheritable(self._listener, False)
            self._recorder.watch(self._listener, self._source)

    def refused(self, program: str, *, changed: bool) -> None:
        """Tells the record that the command's program, an absolute path, was refused.

        `changed`: because the manifest has another content for it.
        """
        if self._reports is not None:
            self._reports.refused(self._number, program, changed=changed)

    def stopping(self) -> None:
        """Tells the control plane that the command is being ended."""
        self._recorder.stopping()

    @property
    def searches(self) -> bool:
        """Whether it must search for its tree: no scopes limit the reach of its signals."""
        return not self._profile.scoped

    @property
    def idle(self) -> bool:
        """Whether it waits for a command: without one, it has nothing to report."""
        try:
            self.receive()
        except BlockingIOError:
            return not self.lost
        return False

    @property
    def settled(self) -> bool:
        """Whether its broker is done with the last command: one that is not may be about to end."""
        if self._reports is None:
            return True
        self._reports.take()
        return not self._reports.busy

    @property
    def lost(self) -> bool:
        """Whether its broker has ended: no program can be executed any more."""
        return self._reports is not None and self._reports.lost

    @property
    def closed(self) -> bool:
        """Whether the guard was released; it takes no further command."""
        return self.socket.fileno() < 0

    def kill(self, on_end: Callable[[], None]) -> None:
        """Kills the guard and calls back; the command's processes then have no owner.

        Where executions are reported, what is left of the command can't execute anything any more.
        """
        self.close()
        if self._ended:
            on_end()
        else:
            self._on_end = on_end
            os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> None:
        """Marks the process as ended: its pid may belong to another process from now on."""
        self._ended = True
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def close(self) -> None:
        """Releases the guard: an idle guard ends, a busy one kills its command.

        A command that waits for `go` never executes its program.
        """
        self._starter.close()
        self.socket.close()
        if self._listener is not None:
            self._recorder.forget(self._listener)
            self._listener = None
        if self._reports is not None:
            self._reports.close()


def _below_broker(setup: Setup) -> tuple[Forked, socket.socket]:
    """A broker and its child, the guard; and where the broker reports. Raises: OSError."""
    reports, its_reports = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def start(theirs: socket.socket, starter: socket.socket) -> NoReturn:
        begin = functools.partial(run, setup, theirs, starter)
        broker.run(setup.profile, setup.uid, its_reports, begin)

    try:
        forked = Forked(start)
    except OSError:
        reports.close()
        raise
    finally:
        its_reports.close()
    return forked, reports
