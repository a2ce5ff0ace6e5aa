"""The guard's own process: sets itself up, waits for commands, and runs each one to its end."""

import contextlib
import errno
import gc
import os
import select
import signal
import socket
import sys
import time
from typing import Any, NoReturn

from sandbox_agent.core import limits
from sandbox_agent.enforce import (
    command_process,
    guard_messages,
    privileges,
    signalling,
    spawn,
    syscalls,
)
from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.filters import seccomp
from sandbox_agent.enforce.guard_messages import Denied, Ended, Failed, Gone, Outrun, Report, Step
from sandbox_agent.enforce.guards import compiled
from sandbox_agent.enforce.guards import setup as guard_setup
from sandbox_agent.enforce.guards.setup import Setup
from sandbox_agent.enforce.profile import Profile
from sandbox_agent.enforce.spawn import Spawner

_FAILED = 70
# Without Landlock scopes, a tree that is not gone after searches of that time multiplies faster.
_SEARCH_SECONDS = 0.25
# The wait status that shells give for a command that was not found.
_NOT_FOUND_STATUS = 127 << 8
_TEMPORARY = "/tmp"  # noqa: S108 - private to the sandbox


def run(
    setup: Setup | None,
    agent: socket.socket,
    starter: socket.socket,
    broker: socket.socket | None = None,
) -> NoReturn:
    """Runs the guard; never returns.

    Without `setup`, it is forked before there is a session, and waits for it. `starter` is where
    its commands' processes get their plans, `broker` where they hand over the listener of their own
    filter.
    """
    try:
        keep = {agent.fileno(), starter.fileno()}
        if broker is not None:
            keep.add(broker.fileno())
        if setup is not None:
            keep |= setup.descriptors
        privileges.close_others(keep)
        # A collection would touch every object, and so copy all memory that is shared by forks.
        gc.disable()
        syscalls.become_subreaper()
        preference = privileges.OomPreference()
        # The command inherits these, so nothing is left to do at the time a caller waits for it.
        privileges.default_signals()
        # The filter of root inside answers this call, so a command's process could not make it.
        os.setgroups([])
        if setup is None and (setup := guard_setup.receive(agent)) is None:
            os._exit(0)
        privileges.limit_resources(setup.processes)
        if setup.compiled:
            uid, profile, workspace = setup.uid, setup.profile, setup.workspace
            compiled.execute(uid, profile, workspace, agent, starter, preference)
        _confine(setup.profile, agent)
        _Guard(agent, starter, broker, setup, preference).run()
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - a child must never reach its parent's loop
        # The error itself is not printed: it may contain words of a command, and so secrets.
        number = getattr(error, "errno", None)
        print(f"guard failed: {type(error).__name__} {number}", file=sys.stderr, flush=True)
    finally:
        os._exit(_FAILED)


def _confine(profile: Profile, agent: socket.socket) -> None:
    """Enters the confinement of its commands: a guard can do nothing that they can't.

    Only its uid differs. Without Landlock scopes the guard must search /proc for its tree, so it
    leaves the ruleset to each command. The filter is installed last, because it would block the
    earlier steps.
    """
    syscalls.gain_no_privileges()
    if profile.ruleset is not None and profile.scoped:
        syscalls.landlock_restrict(profile.ruleset)
        os.close(profile.ruleset)
    if profile.mdwe:
        syscalls.deny_writable_code()
    # An interrupted signal would be sent again.
    undisturbed = profile.listened and profile.undisturbed and profile.mark is not None
    listener = seccomp.install(
        profile.machine, profile.code, profile.listened, undisturbed=undisturbed
    )
    if listener is not None:
        socket.send_fds(agent, [guard_messages.LISTENER], [listener])
        os.close(listener)


class _Guard:
    """Owns one command at a time."""

    def __init__(
        self,
        agent: socket.socket,
        starter: socket.socket,
        broker: socket.socket | None,
        setup: Setup,
        preference: privileges.OomPreference,
    ) -> None:
        self._agent = agent
        self._starter = starter
        self._broker = broker
        self._uid = setup.uid
        self._workspace = setup.workspace
        self._profile = setup.profile
        self._preference = preference
        self._spawner = Spawner()
        self._number = 0
        self._first = 0
        self._first_ended = False
        self._left_behind = False
        self._outlived = 0
        self._wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def run(self) -> None:
        """Runs one command after the other; nothing of the previous one is left when one starts."""
        while self._serve():
            pass

    def _serve(self) -> bool:
        """Runs one command; returns False when the guard is no longer needed."""
        self._number += 1
        self._first_ended = self._left_behind = False
        self._outlived = 0
        received = command_process.receive_plan(self._starter, self._number)
        if received is None:
            return False
        document, pipes = received
        failed = self._start(document, pipes)
        for fd in set(pipes.descriptors):
            os.close(fd)
        if failed is None:
            return self._attend()
        self._send(failed)
        status = _NOT_FOUND_STATUS if isinstance(failed, Denied) else 0
        self._send(Ended(status, 0, 0, left=False, full=False))
        return True

    def _start(self, document: int, pipes: Pipes) -> Failed | Denied | None:
        """Starts the command's process, which executes nothing before it may; returns a refusal."""
        try:
            plan = command_process.read_plan(document)
            if spawn.applies(self._profile, plan):
                return self._spawn(plan, pipes)
            self._fork(plan, pipes)
        except OSError as error:
            return Failed(Step.START, error.errno or errno.EAGAIN)
        except ValueError:  # words that no program can receive
            return Failed(Step.START, errno.EINVAL)
        except MemoryError:
            return Failed(Step.START, errno.ENOMEM)
        return None

    def _spawn(self, plan: Plan, pipes: Pipes) -> Failed | Denied | None:
        """Raises: OSError; ValueError for words that no program can receive."""
        with privileges.as_user(self._uid):
            workspace = os.open(plan.workspace, os.O_PATH | os.O_DIRECTORY)
            try:
                refused = command_process.entered(workspace, plan)
            finally:
                os.close(workspace)
        try:
            if refused is None:
                with self._preference.to_be_killed():  # inherited: the command can't set it
                    self._first = self._spawner.spawn(plan, pipes, self._uid)
        finally:
            os.chdir("/")
        return refused

    def _fork(self, plan: Plan, pipes: Pipes) -> None:
        """Raises: OSError; ValueError for words that no program can receive."""
        prepared = command_process.prepare(self._number, plan, pipes, self._profile)
        with self._preference.to_be_killed():  # inherited: the command can't set it
            self._first = os.fork()
            if self._first == 0:
                command_process.become_command(
                    prepared,
                    self._uid,
                    self._profile,
                    self._starter,
                    self._agent,
                    self._broker,
                )

    def _attend(self) -> bool:
        """Waits until nothing of the command is left; returns False if the agent is gone."""
        poll = select.poll()
        poll.register(self._wake, select.POLLIN)
        poll.register(self._agent, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == self._wake:
                    os.read(self._wake, 4096)
                    if not self._reap(counting=False):
                        if self._left_behind:  # the agent waits for these processes to end
                            self._send(Gone(0))
                        return True
                    continue
                message = self._agent.recv(guard_messages.MOST_BYTES)
                if not message:
                    self._kill_tree(helped=False)
                    return False
                if not self._obey(message):
                    return True

    def _obey(self, message: bytes) -> bool:
        """Carries out one order; returns False for the last one."""
        order = guard_messages.parse_order(message)
        if order is None or order.number != self._number:
            return True  # not an order, or one for an earlier command
        if order.signal is not None:
            self._signal_group(order.signal)
        elif order.kind == guard_messages.TERM:
            self._signal_tree(signal.SIGTERM)
        else:
            self._kill_tree(helped=True)
            self._send(Gone(self._outlived))
            return False
        return True

    def _reap(self, counting: bool) -> bool:
        """Reaps ended processes; returns False if no child is left."""
        first: tuple[int, Any] | None = None
        left = True
        while left:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                left = False
                break
            if pid == 0:
                break
            if pid == self._first:
                first = status, usage
            elif counting:
                self._outlived += 1
        if first is not None:
            self._first_ended = True
            self._report_end(*first, left=left or counting)
        return left

    def _kill_tree(self, *, helped: bool) -> None:
        """Kills until nothing is left.

        Its Landlock domain limits its reach to its own tree. Without scopes, each round is a
        search, and processes may multiply faster; then, if it is `helped`, the agent ends them.
        """
        began, outrun = time.monotonic(), False
        while self._reap(counting=True):
            if not outrun:
                self._signal_tree(signal.SIGKILL)
            taken = time.monotonic() - began
            if helped and not self._profile.scoped and not outrun and taken > _SEARCH_SECONDS:
                outrun = True
                self._send(Outrun(int(taken * 1000)))
            self._wait_one()

    def _wait_one(self) -> None:
        """Waits for one child to end and leaves it for `_reap`."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return

    def _signal_group(self, number: int) -> None:
        if not self._first_ended:
            self._signal_first(number)
            signalling.kill_as(self._uid, -self._first, number, self._profile.mark)

    def _signal_first(self, number: int) -> None:
        """Signals the first process while it still runs as the guard's user.

        After that, only the session's user can signal it, so one of the two signals reaches it.
        """
        with contextlib.suppress(OSError):
            signalling.kill(self._first, number, self._profile.mark)

    def _signal_tree(self, number: int) -> None:
        if not self._first_ended:
            self._signal_first(number)
        if self._profile.scoped:
            signalling.kill_as(self._uid, -1, number)
            return

        def send_one(_pid: int, descriptor: int) -> None:
            with privileges.as_user(self._uid), contextlib.suppress(OSError):
                signalling.send(descriptor, number, mark=self._profile.mark)

        signalling.to_all(os.getpid(), send_one, seconds=_SEARCH_SECONDS)

    def _report_end(self, status: int, usage: Any, left: bool) -> None:
        self._left_behind = left
        failed = self._spawner.failure(status)
        if failed is not None:
            self._send(failed)
        cpu_us = int((usage.ru_utime + usage.ru_stime) * 1_000_000)
        full = status != 0 and limits.is_full(self._workspace, _TEMPORARY)
        self._send(Ended(status, cpu_us, usage.ru_maxrss * 1024, left, full))

    def _send(self, report: Report) -> None:
        # Without the agent, nobody needs the report.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._agent.send(guard_messages.report(report))
