"""The guard: a small process that owns one command and everything the command starts.

It runs as root without CAP_KILL in a Landlock domain of its own, so that one command
can't signal, trace or read another. It is the reaper of its tree: when `waitpid` says
that no child is left, nothing of the command is, and the guard is free for the next.
"""

import contextlib
import errno
import functools
import marshal
import os
import signal
import socket
from collections.abc import Callable

from sandbox_agent import guard_messages
from sandbox_agent.audit import EventBuffer
from sandbox_agent.confine import profile
from sandbox_agent.confine.profile import Profile, Tool
from sandbox_agent.exec_record import ExecRecorder, Source
from sandbox_agent.guard_process import Pipes, Plan, Setup, run
from sandbox_agent.loop import Loop
from sandbox_agent.protocol import Boot

# Guards that wait for a command; each takes about a MiB.
_KEPT = 2


class Guard:
    """The agent's side of one guard. Raises: OSError where no process can be made."""

    def __init__(self, setup: Setup, recorder: ExecRecorder) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self.pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if self.pid == 0:
            run(setup, theirs)
        theirs.close()
        ours.setblocking(False)
        self.socket = ours
        # Whose its commands' processes are, and how many there may be of them.
        self.uid, self.processes = setup.uid, setup.processes
        self._on_end: Callable[[], None] | None = None
        self._ended = False
        self._number = 0
        self._recorder = recorder
        self._source = Source(setup.profile.executable)
        self._listener: int | None = None

    def start(self, command_id: str, plan: Plan, pipes: Pipes) -> None:
        """Hands it its next command. Raises: OSError when the guard is gone."""
        self._number += 1
        self._source.begin(command_id)
        # A document of its own, because a plan may be larger than one message.
        document = os.memfd_create("plan", os.MFD_CLOEXEC)
        try:
            os.write(document, marshal.dumps(tuple(plan)))
            message = guard_messages.plan(self._number)
            socket.send_fds(self.socket, [message], [*pipes, document])
        finally:
            os.close(document)

    def order(self, kind: bytes) -> bool:
        """Gives an order for the present command; False when too many wait already.

        A command that has ended needs none.
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
        """Its next report; empty when it is gone. Raises: BlockingIOError when there is none."""
        while True:
            try:
                most = guard_messages.MOST_BYTES
                report, descriptors, _, _ = socket.recv_fds(self.socket, most, 1)
            except ConnectionResetError:  # it died with orders unread
                return b""
            if report != guard_messages.LISTENER or len(descriptors) != 1:
                return report
            (self._listener,) = descriptors
            os.set_inheritable(self._listener, False)
            self._recorder.watch(self._listener, self._source)

    @property
    def closed(self) -> bool:
        """Whether it was let go of: it is for no further command."""
        return self.socket.fileno() < 0

    def kill(self, on_end: Callable[[], None]) -> None:
        """Ends it, whatever it does, and calls back; its command's processes are nobody's then.

        Nothing can be executed any more by what is left of the command, where that is reported.
        """
        self.close()
        if self._ended:
            on_end()
        else:
            self._on_end = on_end
            os.kill(self.pid, signal.SIGKILL)

    def ended(self) -> None:
        """Its process has ended, and its number may be another's from now on."""
        self._ended = True
        on_end, self._on_end = self._on_end, None
        if on_end is not None:
            on_end()

    def close(self) -> None:
        """Lets go of it: without a command it ends, a running one it kills."""
        self.socket.close()
        if self._listener is not None:
            self._recorder.forget(self._listener)
            self._listener = None


class Guards:
    """Lends guards to commands, and keeps a few ready: making one costs more than a command."""

    def __init__(self, loop: Loop, boot: Boot, abi: int, events: EventBuffer) -> None:
        self._loop = loop
        self._boot = boot
        self._abi = abi
        self._recorder = ExecRecorder(loop, events, boot.uid)
        self._profile: Profile | None = None
        self._idle: list[Guard] = []

    def confine(self) -> None:
        """Builds what every guard enters; there are no guards before.

        Raises: ConfinementError where commands can't be confined.
        """
        self._profile = profile.build(self._boot, self._abi)

    def prepare(self) -> None:
        """Makes the first guard before it is asked for, if there is room for it."""
        with contextlib.suppress(OSError):
            self._idle.append(self.take())

    def take(self) -> Guard:
        """A guard for one command. Raises: OSError where no process can be made."""
        if self._idle:
            return self._idle.pop()
        if self._profile is None:
            raise OSError(errno.EAGAIN, "the sandbox is not confined yet")
        return self._make(self._profile)

    def take_for(self, tool: Tool) -> Guard:
        """A guard for a tool, which may do what it needs besides what commands may.

        It is not for anything else: close it afterwards. Raises: ConfinementError, OSError.
        """
        own = profile.build(self._boot, self._abi, tool)
        try:
            return self._make(own)
        finally:
            if own.ruleset is not None:
                os.close(own.ruleset)

    def give_back(self, guard: Guard) -> None:
        """Its command has ended."""
        if len(self._idle) < _KEPT and not guard.closed:
            self._idle.append(guard)
        else:
            guard.close()

    def _make(self, held_to: Profile) -> Guard:
        guard = Guard(Setup(self._boot.uid, self._boot.processes, held_to), self._recorder)
        self._loop.on_exit(guard.pid, functools.partial(self._ended, guard))
        return guard

    def _ended(self, guard: Guard) -> None:
        if guard in self._idle:
            self._idle.remove(guard)
            guard.close()
        guard.ended()
