"""The guard's own process: sets itself up, waits for commands, and runs each one to its end."""

import contextlib
import errno
import fcntl
import marshal
import os
import select
import signal
import socket
import sys
import termios
from typing import Any, NamedTuple, NoReturn

from sandbox_agent import guard_messages, limits, processes
from sandbox_agent.confine import beneath, privileges, seccomp, syscalls
from sandbox_agent.confine.profile import Profile
from sandbox_agent.guard_messages import Denied, Ended, Failed, Gone, Order, Report, Step

_NOT_FOUND = 127
_FAILED = 70
_TEMPORARY = "/tmp"  # noqa: S108 - private to the sandbox


class Setup(NamedTuple):
    """The settings that every guard of this sandbox needs before its command.

    `processes` is the maximum number of processes of the session's uid.
    """

    uid: int
    processes: int
    profile: Profile


class Plan(NamedTuple):
    """One allowed command, ready to run.

    `program` is the file to execute; a bare name is looked up along the PATH of `env`. `cwd` is
    relative to the workspace. `inside` lists (path, follow) operands, relative to the workspace,
    that must resolve inside it. With `terminal`, the standard streams are a terminal, which becomes
    the controlling terminal.
    """

    program: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    inside: list[tuple[str, bool]]
    workspace: str
    terminal: bool = False


class Pipes(NamedTuple):
    """The command's ends of its three standard streams."""

    stdin: int
    stdout: int
    stderr: int


def run(setup: Setup, agent: socket.socket) -> None:
    """Runs the guard; never returns."""
    profile = setup.profile
    try:
        keep = {agent.fileno()} if profile.ruleset is None else {agent.fileno(), profile.ruleset}
        _close_others(keep)
        syscalls.become_subreaper()
        preference = privileges.OomPreference()
        # The command inherits these, so nothing is left to do at the time a caller waits for it.
        privileges.default_signals()
        privileges.limit_resources(setup.processes)
        _confine(profile, agent)
        _Guard(agent, setup, preference).run()
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
    if not profile.writable_code:
        syscalls.deny_writable_code()
    listener = seccomp.install(profile.machine, profile.code, listen=profile.cookie is not None)
    if listener is not None:
        socket.send_fds(agent, [guard_messages.LISTENER], [listener])
        os.close(listener)


def _close_others(keep: set[int]) -> None:
    """Closes the agent's other descriptors: the pipes of other commands must not stay open here."""
    low = 3
    for fd in sorted(keep):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


def _receive_plan(agent: socket.socket) -> tuple[int, Plan, Pipes] | None:
    """The next command's number, plan and pipes; None when the guard is no longer needed."""
    while True:
        message, descriptors, _, _ = socket.recv_fds(agent, guard_messages.MOST_BYTES, 4)
        if not message:
            return None
        if descriptors:
            break  # without descriptors it is a late order for an earlier command
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # `recv_fds` passes no flags on to the kernel
    *pipes, document = descriptors
    plan = Plan(*marshal.loads(os.pread(document, os.fstat(document).st_size, 0)))  # noqa: S302
    os.close(document)
    return guard_messages.plan_number(message), plan, Pipes(*pipes)


class _Guard:
    """Owns one command at a time."""

    def __init__(
        self, agent: socket.socket, setup: Setup, preference: privileges.OomPreference
    ) -> None:
        self._agent = agent
        self._uid = setup.uid
        self._profile = setup.profile
        self._preference = preference
        self._number = 0
        self._workspace = ""
        self._first = 0
        self._first_ended = False
        self._left_behind = False
        self._outlived = 0
        self._wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def run(self) -> None:
        """Runs commands in turn; the next one starts when nothing of the previous one is left."""
        while True:
            received = _receive_plan(self._agent)
            if received is None:
                return
            self._number, plan, pipes = received
            self._workspace = plan.workspace
            self._first_ended = self._left_behind = False
            self._outlived = 0
            started = self._fork(plan, pipes)
            # Only the command may hold its pipes, because their end of file is the end of its
            # output.
            for fd in pipes:
                os.close(fd)
            if started:
                self._attend()

    def _fork(self, plan: Plan, pipes: Pipes) -> bool:
        """Starts the command; reports and returns False if the sandbox has no room for it."""
        try:
            with self._preference.to_be_killed():  # inherited: the command can't set it
                self._first = os.fork()
                if self._first == 0:
                    _become_command(plan, pipes, self._uid, self._profile, self._agent)
        except OSError as error:
            self._send(Failed(Step.START, error.errno or errno.EAGAIN))
            self._send(Ended(0, 0, 0, left=False, full=False))
            return False
        return True

    def _attend(self) -> None:
        """Waits until nothing of the command is left."""
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
                        return
                elif not self._obey(self._agent.recv(guard_messages.MOST_BYTES)):
                    return

    def _obey(self, message: bytes) -> bool:
        """Carries out one order; returns False for the last one, and if the agent is gone."""
        order = guard_messages.parse_order(message)
        if not message:
            order = Order(guard_messages.KILL, None, self._number)
        if order is None or order.number != self._number:
            return True  # not an order, or one for an earlier command
        if order.signal is not None:
            self._signal_group(order.signal)
        elif order.kind == guard_messages.TERM:
            self._signal_tree(signal.SIGTERM)
        else:
            self._kill_tree()
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

    def _kill_tree(self) -> None:
        """Kills until nothing is left. Its Landlock domain limits its reach to its own tree."""
        while self._reap(counting=True):
            self._signal_tree(signal.SIGKILL)
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
            privileges.signal_as(self._uid, -self._first, number)

    def _signal_first(self, number: int) -> None:
        """Signals the first process while it still runs as the guard's user.

        After that, only the session's user can signal it, so one of the two signals reaches it.
        """
        with contextlib.suppress(OSError):
            os.kill(self._first, number)

    def _signal_tree(self, number: int) -> None:
        if not self._first_ended:
            self._signal_first(number)
        if self._profile.scoped:
            privileges.signal_as(self._uid, -1, number)
            return
        for pid in processes.below(os.getpid()):
            privileges.signal_as(self._uid, pid, number)

    def _report_end(self, status: int, usage: Any, left: bool) -> None:
        self._left_behind = left
        cpu_us = int((usage.ru_utime + usage.ru_stime) * 1_000_000)
        full = status != 0 and limits.is_full(self._workspace, _TEMPORARY)
        self._send(Ended(status, cpu_us, usage.ru_maxrss * 1024, left, full))

    def _send(self, report: Report) -> None:
        # Without the agent, nobody needs the report.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._agent.send(guard_messages.report(report))


def _become_command(
    plan: Plan, pipes: Pipes, uid: int, profile: Profile, agent: socket.socket
) -> NoReturn:
    """Runs in the command's process up to its exec. It must never become a second guard."""
    try:
        agent.send(guard_messages.report(_tried(plan, pipes, uid, profile)))
    finally:
        os._exit(_NOT_FOUND)


def _tried(plan: Plan, pipes: Pipes, uid: int, profile: Profile) -> Failed | Denied:
    """Becomes the command, or returns the reason for a failure. The order of the steps matters.

    The caller waits for this, so `run` does in advance whatever it can.
    """
    step = Step.START
    try:
        os.setsid()
        for target, fd in enumerate(pipes):
            os.dup2(fd, target)
        if plan.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        privileges.drop_to(uid)
        workspace = os.open(plan.workspace, os.O_PATH | os.O_DIRECTORY)
        step = Step.DIRECTORY
        _enter(workspace, plan.cwd)
        step = Step.PATHS
        escaping = _first_escaping(workspace, plan.inside)
        if escaping is not None:
            return Denied(escaping)
        if profile.ruleset is not None and not profile.scoped:
            syscalls.landlock_restrict(profile.ruleset)
        step = Step.PROGRAM
        _execute(plan, profile)
    except OSError as error:
        return Failed(step, error.errno or errno.EINVAL)
    except Exception:  # noqa: BLE001 - invalid words, as with a NUL, and lack of memory
        return Failed(step, errno.EINVAL)


def _enter(workspace: int, directory: str) -> None:
    """Enters a directory of the workspace without following links out of it, or an absolute one."""
    if directory.startswith("/"):
        os.chdir(directory)
    else:
        os.fchdir(beneath.open_path(workspace, directory))


def _execute(plan: Plan, profile: Profile) -> NoReturn:
    """Executes the plan's program, looked up along the PATH as a shell does. Raises: OSError."""
    if "/" in plan.program:
        candidates = [plan.program]
    else:
        candidates = [f"{item or '.'}/{plan.program}" for item in os.get_exec_path(plan.env)]
    refused = OSError(errno.ENOENT, os.strerror(errno.ENOENT), plan.program)
    for path in candidates:
        try:
            seccomp.execute(profile.machine, path, plan.argv, plan.env, profile.cookie)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error  # unless a later candidate exists
    raise refused


def _first_escaping(workspace: int, operands: list[tuple[str, bool]]) -> int | None:
    """The index of the first operand that leads out of the workspace or to a missing target."""
    for index, (path, follow) in enumerate(operands):
        try:
            os.close(beneath.open_path(workspace, path, follow))
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.ELOOP) or (
                error.errno == errno.ENOENT and _dangles(workspace, path)
            ):
                return index
    return None


def _dangles(workspace: int, path: str) -> bool:
    """Whether a link on the way to `path` has no target: the command could create it and go on.

    The target may be `new/../..`, which leads out once a directory `new` exists.
    """
    while path:
        try:
            os.stat(path, dir_fd=workspace, follow_symlinks=False)
        except FileNotFoundError:
            path = path.rpartition("/")[0]
            continue
        return not _exists(workspace, path)
    return False


def _exists(workspace: int, path: str) -> bool:
    try:
        os.stat(path, dir_fd=workspace)
    except FileNotFoundError:
        return False
    return True
