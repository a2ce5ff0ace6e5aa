"""The broker: a process that opens files for one guard's commands, and reports what they miss.

The kernel stops each process that opens a file for reading, or executes one, until the broker has
answered. The broker is the parent of the guard, and so in a Landlock domain above that of the
commands: it can look into them, and they can't reach it. It serves nobody else, so a command that
keeps it busy delays only itself. If it dies, every such call fails.
"""

import _thread
import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import NamedTuple, NoReturn

from sandbox_agent.decide import digest
from sandbox_agent.enforce import caller, notify, privileges, syscalls
from sandbox_agent.enforce.caller import UNKNOWN
from sandbox_agent.enforce.filters import own_threads, signals
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.notify import Notice
from sandbox_agent.enforce.profile import Profile
from sandbox_agent.enforce.reads.memories import Memories
from sandbox_agent.enforce.reads.misses import (
    CALL,
    LISTENER,
    MISS,
    MOST_ALLOWED,
    MOST_DETAILED,
    OVER,
    Miss,
    Misses,
    cut_path,
    encode,
)
from sandbox_agent.enforce.reads.opener import Asked, Hidden, Missed, Opened, Opener, Waits
from sandbox_agent.enforce.reads.read_profile import Reads

_FAILED = 70
_INT = 0xFFFFFFFF
# AT_FDCWD: -100 as an int.
_THIS_DIRECTORY = 2**32 - 100
_MOST_WAITING = 16
# Counted misses are reported this often, and at the command's end.
_COUNTED_SECONDS = 1.0
_LONGEST_NUMBER = 32


class _Served(NamedTuple):
    """One command: its number, its listener, and its misses."""

    number: int
    listener: int
    misses: Misses


def run(
    profile: Profile,
    uid: int,
    agent: socket.socket,
    start_guard: Callable[[socket.socket], NoReturn],
) -> NoReturn:
    """Runs the broker; never returns.

    `start_guard` is called in a child and becomes the guard; it gets the socket on which its
    commands hand over their listeners. `agent` is where reports go; no other descriptor is kept.
    """
    reads = profile.reads
    if reads is None:
        raise ValueError("the profile has no manifest")
    try:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        digest.load()  # no file of the agent can be read later
        syscalls.gain_no_privileges()
        if reads.ruleset is not None:
            syscalls.landlock_restrict(reads.ruleset)
        if os.fork() == 0:
            start_guard(theirs)
        privileges.close_others({ours.fileno(), agent.fileno()})
        gc.disable()
        signal.set_wakeup_fd(-1)
        os.setgroups([])
        os.umask(0)
        syscalls.borrow_file_identity(uid)
        _Broker(reads, profile.machine, agent, ours).run()
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - a child must never reach its parent's loop
        number = getattr(error, "errno", None)
        print(f"broker failed: {type(error).__name__} {number}", file=sys.stderr, flush=True)
    finally:
        os._exit(_FAILED)


class _Broker:
    """Answers the listeners of one guard's commands, one call at a time."""

    def __init__(
        self, reads: Reads, machine: str, agent: socket.socket, guard: socket.socket
    ) -> None:
        self._agent = agent
        self._guard = guard
        self._recorded = reads.recorded
        # What the agent answers, and the signals among it.
        self._shared = reads.recorded or reads.signals
        self._signal_calls = signals.names(machine)
        self._most = MOST_DETAILED if reads.enforced else MOST_ALLOWED
        self._opener = Opener(
            reads.manifest, reads.denials, enforced=reads.enforced, truncation=reads.truncation
        )
        numbers = ARCHITECTURES[machine].calls
        self._names = {
            numbers[name]: name for name in ("open", "openat", "execve") if name in numbers
        }
        self._thread_calls = own_threads.names(machine)
        self._served: dict[int, _Served] = {}
        self._memories = Memories()
        # When counted misses were reported last.
        self._told = 0.0
        # The FIFOs for whose writer a thread waits.
        self._waiting: set[int] = set()
        self._poll = select.poll()
        self._poll.register(guard, select.POLLIN)

    def run(self) -> None:
        """Serves until the guard is gone."""
        while True:
            counted = [each for each in self._served.values() if each.misses.counted]
            ready = self._poll.poll(_COUNTED_SECONDS * 1000 if counted else None)
            if counted and time.monotonic() > self._told + _COUNTED_SECONDS:
                self._told = time.monotonic()
                for served in counted:
                    self._tell_counted(served)
            for fd, events in ready:
                if fd == self._guard.fileno():
                    if not self._accept():
                        return
                elif events & select.POLLIN:
                    self._serve(self._served[fd])
                else:
                    self._end(self._served[fd])

    def _accept(self) -> bool:
        """Takes the listener of the next command; returns False if the guard is gone."""
        message, descriptors, _, _ = socket.recv_fds(self._guard, _LONGEST_NUMBER, 1)
        if not message:
            return False
        (listener,) = descriptors
        os.set_inheritable(listener, False)
        self._served[listener] = _Served(int(message), listener, Misses(self._most))
        self._poll.register(listener, select.POLLIN)
        shared = [listener] if self._shared else []
        socket.send_fds(self._agent, [encode(LISTENER, int(message))], shared)
        return True

    def _end(self, served: _Served) -> None:
        """Nothing of the command is left."""
        self._poll.unregister(served.listener)
        del self._served[served.listener]
        os.close(served.listener)
        self._memories.forget()
        self._tell_counted(served)
        if self._waiting:
            # Nothing wakes the threads that wait for a writer. The agent takes another guard.
            os._exit(0)
        self._agent.send(encode(OVER, served.number))

    def _serve(self, served: _Served) -> None:
        notice = notify.receive(served.listener)
        if notice is not None:
            self._answered(served, notice, lambda: self._answer_waiting(served, notice))

    def _answered(self, served: _Served, notice: Notice, answer: Callable[[], None]) -> None:
        """Refuses the call if it can't be answered."""
        try:
            answer()
        except Missed as missed:
            self._tell(served, notice, missed.path, denied=True, changed=missed.changed)
            notify.refuse(served.listener, notice, missed.number)
        except OSError as error:
            notify.refuse(served.listener, notice, error.errno or errno.EACCES)
        except Exception as error:  # noqa: BLE001 - a call that can't be judged fails
            print(f"open not judged: {type(error).__name__}", file=sys.stderr, flush=True)
            notify.refuse(served.listener, notice, errno.EACCES)

    def _answer_waiting(self, served: _Served, notice: Notice) -> None:
        """Raises: Missed; OSError: the call fails with that error, or is over."""
        try:
            self._answer(served, notice)
        except Hidden:
            # The kernel hides a process that is ending, too: it misses nothing.
            notify.check_waiting(served.listener, notice)
            raise

    def _answer(self, served: _Served, notice: Notice) -> None:
        """Raises: Missed; OSError: the call fails with that error."""
        if notice.number in self._thread_calls:
            own_threads.answer(served.listener, notice, self._thread_calls[notice.number])
            return
        if notice.number in self._signal_calls:
            self._agent.send(encode(CALL, served.number, notice))
            return
        asked = self._asked(notice)
        # The pid may have passed to another process by now.
        notify.check_waiting(served.listener, notice)
        if self._names[notice.number] == "execve":
            self._memories.forget()
            self._tell_outside(served, notice, self._opener.check_execution(asked))
            if self._recorded:
                self._agent.send(encode(CALL, served.number, notice))
            else:
                notify.let_go_on(served.listener, notice)
            return
        try:
            self._give(served, notice, asked, self._opener.open(asked))
        except Waits as waits:
            self._wait(served, notice, asked, waits.pin)

    def _asked(self, notice: Notice) -> Asked:
        name = self._names[notice.number]
        directory = _THIS_DIRECTORY
        at, flags, mode, *_ = notice.arguments
        if name == "openat":
            directory, at, flags, mode, *_ = notice.arguments
            directory &= _INT
        try:
            path = self._memories.path(notice.pid, at)
        except PermissionError:
            raise Hidden(errno.EACCES, UNKNOWN.encode()) from None
        if name == "execve":
            return Asked(notice.pid, None, path)
        own = None if directory == _THIS_DIRECTORY else directory
        return Asked(notice.pid, own, path, flags & _INT, mode & _INT)

    def _give(self, served: _Served, notice: Notice, asked: Asked, opened: Opened) -> None:
        """Passes the descriptor to the caller and closes it here. Raises: OSError."""
        try:
            self._tell_outside(served, notice, opened.outside)
            inherited = not asked.flags & os.O_CLOEXEC
            notify.give(served.listener, notice, opened.descriptor, inherited=inherited)
        finally:
            os.close(opened.descriptor)

    def _wait(self, served: _Served, notice: Notice, asked: Asked, fifo: int) -> None:
        """Lets a thread wait for a FIFO's writer. Raises: OSError if too many wait."""

        def wait() -> None:
            self._answered(
                served,
                notice,
                lambda: self._give(served, notice, asked, self._opener.wait(fifo, asked)),
            )
            self._waiting.discard(fifo)
            os.close(fifo)

        try:
            if len(self._waiting) >= _MOST_WAITING:
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            self._waiting.add(fifo)
            _thread.start_new_thread(wait, ())
        except (OSError, RuntimeError):
            self._waiting.discard(fifo)
            os.close(fifo)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from None

    def _tell_outside(self, served: _Served, notice: Notice, path: bytes | None) -> None:
        if path is not None:
            self._tell(served, notice, path, denied=False)

    def _tell(
        self, served: _Served, notice: Notice, path: bytes, *, denied: bool, changed: bool = False
    ) -> None:
        """Reports a miss. It is told before the call is answered, so none is lost."""
        process = notice.pid
        with contextlib.suppress(OSError):
            process = caller.process(notice.pid).id
        program = cut_path(caller.running(notice.pid).path.encode())
        call = self._names[notice.number]
        miss = Miss(cut_path(path), call, program, process, denied, changed)
        if served.misses.take(miss):
            self._agent.send(encode(MISS, served.number, miss, 1))

    def _tell_counted(self, served: _Served) -> None:
        counted = served.misses.drain()
        if counted is not None:
            self._agent.send(encode(MISS, served.number, *counted))
