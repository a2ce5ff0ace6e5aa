"""Answers the signals that commands send, on kernels that can't keep them inside a command.

A process may signal the processes of its own command's tree, and nothing tells it of others: they
don't exist for it (ESRCH). A call about the caller's own process goes on to the kernel. Anything
else is sent from here, by descriptors, as the session's user. Such a signal has the caller as its
sender, and SI_QUEUE as its code, because no process may use the kernel's codes for another.
"""

import errno
import os
import time

from sandbox_agent.enforce import notify, privileges, signalling
from sandbox_agent.enforce.filters import signals
from sandbox_agent.enforce.filters.signals import ALL, InvalidCallError, Wanted
from sandbox_agent.enforce.notify import Notice
from sandbox_agent.enforce.processes import Stat, look
from sandbox_agent.enforce.resolve import leader, read


class SignalRequests:
    """Decides and sends for all guards of one sandbox.

    `undisturbed`: no signal interrupts a reported call. Without that, a signal to the caller itself
    is sent after the answer, because the interrupted call would be made again.
    """

    def __init__(self, uid: int, machine: str, *, undisturbed: bool) -> None:
        self._uid = uid
        self._undisturbed = undisturbed
        self.calls = signals.names(machine)

    def answer(self, listener: int, notice: Notice, root: int) -> float:
        """Answers one call of a process below `root`; returns the seconds that a search took.

        Raises: OSError.
        """
        began = time.monotonic()
        try:
            wanted = signals.wanted(self.calls[notice.number], notice.arguments)
            own = leader(notice.pid)
            # Until the answer, the numbers of the thread and its process are the caller's.
            notify.check_waiting(listener, notice)
            if signals.may_go_on(wanted, own, notice.pid):
                notify.let_go_on(listener, notice)
                return 0.0
            if wanted.setting:
                raise PermissionError(errno.EPERM, "another owner")
            _Request(self._uid, listener, notice, own, root, self._undisturbed).send(wanted)
        except InvalidCallError:
            notify.refuse(listener, notice, errno.EINVAL)
        except ProcessLookupError:
            notify.refuse(listener, notice, errno.ESRCH)
        except OSError as error:
            notify.refuse(listener, notice, error.errno or errno.EPERM)
        return time.monotonic() - began


class _Request:
    """One call whose signals are sent here."""

    def __init__(
        self, uid: int, listener: int, notice: Notice, own: int, root: int, undisturbed: bool
    ) -> None:
        self._uid = uid
        self._listener = listener
        self._notice = notice
        self._own = own
        self._root = root
        self._undisturbed = undisturbed
        self._sent = False
        self._refused: OSError | None = None
        # The caller's own process, if it is among the targets: it comes last.
        self._own_wanted = False

    def send(self, wanted: Wanted) -> None:
        """Sends and answers. Raises: OSError, InvalidCallError: the call fails with that error."""
        info = self._info(wanted)
        target = self._target(wanted)
        if target < 0:
            self._send_to_many(target, wanted.number, info)
        elif wanted.thread is not None and wanted.thread != target:
            with signalling.opened(target, self._root), privileges.wholly_as(self._uid):
                signalling.send_to_thread(target, wanted.thread, wanted.number, info)
        elif target == self._own:
            self._own_wanted = True
        else:
            with signalling.opened(target, self._root) as descriptor:
                self._send_by(descriptor, wanted.number, info)
        self._answer(wanted.number, info)

    def _answer(self, number: int, info: bytes) -> None:
        if not self._own_wanted:
            notify.succeed(self._listener, self._notice)
            return
        with signalling.opened(self._own, self._root) as descriptor:
            if not self._undisturbed:
                notify.succeed(self._listener, self._notice)
            self._send_by(descriptor, number, info)
        if self._undisturbed:
            notify.succeed(self._listener, self._notice)

    def _send_by(self, descriptor: int, number: int, info: bytes) -> None:
        """Raises: OSError; ProcessLookupError also for what is root's: a guard below a broker."""
        try:
            with privileges.wholly_as(self._uid):
                signalling.send(descriptor, number, info)
        except PermissionError:
            raise ProcessLookupError from None

    def _send_to_many(self, target: int, number: int, info: bytes) -> None:
        """Raises: OSError if no process has received it."""

        def chosen(pid: int, stat: Stat) -> bool:
            if target == ALL:
                return pid != self._own
            return stat.group == -target

        def send_one(pid: int, descriptor: int) -> None:
            now = look(pid)
            if now is None or not chosen(pid, now):
                return
            if pid == self._own:
                self._own_wanted = True
                return
            try:
                self._send_by(descriptor, number, info)
                self._sent = True
            except OSError as error:
                self._refused = error

        signalling.to_all(self._root, send_one, chosen)
        if not self._sent and not self._own_wanted:
            raise self._refused or ProcessLookupError

    def _target(self, wanted: Wanted) -> int:
        """The process, or the group as a negative number. Raises: OSError."""
        if wanted.descriptor is not None:
            return self._named_by(wanted.descriptor)
        number = wanted.thread if wanted.target is None else wanted.target
        if number is None or number == 0:
            raise ProcessLookupError
        if number < 0:
            return number
        try:
            return leader(number) if wanted.target is None or wanted.thread is None else number
        except FileNotFoundError:
            raise ProcessLookupError from None

    def _named_by(self, descriptor: int) -> int:
        """The process of one of the caller's descriptors. Raises: OSError."""
        path = b"/proc/%d/fdinfo/%d" % (self._notice.pid, descriptor)
        try:
            with privileges.as_user(self._uid):
                text = read(path)
        except FileNotFoundError:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF)) from None
        _, named, rest = text.partition(b"\nPid:")
        if not named:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        pid = int(rest.split(maxsplit=1)[0])
        if pid <= 0:
            raise ProcessLookupError
        return pid

    def _info(self, wanted: Wanted) -> bytes:
        """Raises: OSError, InvalidCallError."""
        if not wanted.info:
            return signals.sent_by(wanted.number, self._own, self._uid)
        info = notify.read_whole(self._notice.pid, wanted.info, signals.INFO_BYTES, self._uid)
        return signals.checked_info(wanted, info)
