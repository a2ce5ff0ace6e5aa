"""The guard: a small process that owns one command and everything the command starts.

It runs as root without CAP_KILL in a Landlock domain of its own, so that one command
can't signal, trace or read another. It is the reaper of its tree: when `waitpid` says
that no child is left, nothing of the command is.

Agent and guard talk over a SOCK_SEQPACKET pair.
    agent → guard   s<number>  signal the command's process group
                    t          TERM to the whole tree
                    k          KILL the whole tree, report, end
    guard → agent   X<json>    the command could not be started: {errno, what} or {denied}
                    E<json>    the first process ended: {status, cpu_us, max_rss_bytes, left};
                               without `left` nothing else of it runs, and the guard ends
                    G<number>  nothing is left now; that many processes outlived the first
"""

import contextlib
import errno
import json
import os
import select
import signal
import socket
import sys
from typing import Any, NamedTuple

from sandbox_agent.confine import privileges, syscalls

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_NOT_FOUND = 127
_GUARD_FAILED = 70


class Plan(NamedTuple):
    """One command, decided and ready to run.

    `cwd` is relative to the workspace. `inside` lists (path, follow) operands, relative
    to the workspace, that must resolve inside it.
    """

    argv: list[str]
    env: dict[str, str]
    cwd: str
    inside: list[tuple[str, bool]]
    uid: int
    processes: int
    workspace: str
    # The prebuilt scope ruleset; None where the kernel has no scopes.
    ruleset: int | None


class Pipes(NamedTuple):
    """The command's ends of its standard streams."""

    stdin: int
    stdout: int
    stderr: int


def fork(plan: Plan, pipes: Pipes) -> tuple[int, socket.socket]:
    """Starts a guard and with it the command; returns its pid and the agent's end of its socket.

    Raises: OSError where no process can be made.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        pid = os.fork()
    except OSError:
        ours.close()
        theirs.close()
        raise
    if pid == 0:
        _run(plan, pipes, theirs)
    theirs.close()
    ours.setblocking(False)
    return pid, ours


def _run(plan: Plan, pipes: Pipes, agent: socket.socket) -> None:
    """The guard's whole life; never returns."""
    try:
        _close_others({*pipes, agent.fileno(), plan.ruleset or 0})
        _Guard(plan, pipes, agent).run()
        os._exit(0)
    except BaseException as error:  # noqa: BLE001 - a forked child must never fall back into the agent's loop
        print(f"guard failed: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(_GUARD_FAILED)


def _close_others(keep: set[int]) -> None:
    """Closes the agent's other descriptors: other commands' pipes must not stay open here."""
    low = 3
    for fd in sorted(fd for fd in keep if fd >= low):
        os.closerange(low, fd)
        low = fd + 1
    os.closerange(low, os.sysconf("SC_OPEN_MAX"))


class _Guard:
    def __init__(self, plan: Plan, pipes: Pipes, agent: socket.socket) -> None:
        self._plan = plan
        self._pipes = pipes
        self._agent = agent
        self._first = 0
        self._first_ended = False
        self._outlived = 0

    def run(self) -> None:
        syscalls.become_subreaper()
        if self._plan.ruleset is not None:
            syscalls.landlock_restrict(self._plan.ruleset)
        wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._first = os.fork()
        if self._first == 0:
            _become_command(self._plan, self._pipes, self._agent)
        # Only the command may hold its pipes: their end of file is the end of its output.
        for fd in self._pipes:
            os.close(fd)
        poll = select.poll()
        poll.register(wake_read, select.POLLIN)
        poll.register(self._agent, select.POLLIN)
        while True:
            for fd, _ in poll.poll():
                if fd == wake_read:
                    os.read(wake_read, 4096)
                    if not self._reap(counting=False):
                        return
                elif not self._obey(self._agent.recv(64)):
                    return

    def _obey(self, order: bytes) -> bool:
        """Carries out one order; False when it was the last."""
        if order[:1] == b"s":
            self._signal_group(int(order[1:]))
        elif order == b"t":
            self._signal_tree(signal.SIGTERM)
        else:  # `k`, or the agent is gone
            self._kill_tree()
            self._send(b"G%d" % self._outlived)
            return False
        return True

    def _reap(self, counting: bool) -> bool:
        """Reaps what has ended; False when no child is left at all."""
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
        """Kills until nothing is left. Only its own tree is in reach of its domain."""
        while self._reap(counting=True):
            self._signal_tree(signal.SIGKILL)
            self._wait_one()

    def _wait_one(self) -> None:
        """Waits for one child to end, and leaves it to `_reap`."""
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            return

    def _signal_group(self, number: int) -> None:
        if not self._first_ended:
            privileges.signal_as(self._plan.uid, -self._first, number)

    def _signal_tree(self, number: int) -> None:
        if self._plan.ruleset is not None:
            privileges.signal_as(self._plan.uid, -1, number)
            return
        for pid in descendants(os.getpid()):
            privileges.signal_as(self._plan.uid, pid, number)

    def _report_end(self, status: int, usage: Any, left: bool) -> None:
        report = {
            "status": status,
            "cpu_us": int((usage.ru_utime + usage.ru_stime) * 1_000_000),
            "max_rss_bytes": usage.ru_maxrss * 1024,
            "left": left,
        }
        self._send(b"E" + json.dumps(report).encode())

    def _send(self, report: bytes) -> None:
        # Without its agent, nobody is left who could want to know.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._agent.send(report)


def descendants(root: int) -> list[int]:
    """Every process below `root`, from /proc: for kernels without Landlock scopes."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(name))
    found: list[int] = []
    unseen = [root]
    while unseen:
        below = children.get(unseen.pop(), [])
        found += below
        unseen += below
    return found


def _become_command(plan: Plan, pipes: Pipes, agent: socket.socket) -> None:
    """The command's process up to its exec; never returns. The order of the steps matters."""
    what = "start"
    try:
        signal.set_wakeup_fd(-1)
        privileges.default_signals()
        os.setsid()
        for target, fd in enumerate(pipes):
            os.dup2(fd, target)
        privileges.limit_resources(plan.processes)
        privileges.prefer_for_oom_kill()
        privileges.drop_to(plan.uid)
        workspace = os.open(plan.workspace, os.O_PATH | os.O_DIRECTORY)
        what = f"enter directory {plan.cwd!r}"
        os.fchdir(syscalls.open_beneath(workspace, plan.cwd, os.O_PATH | os.O_DIRECTORY))
        escaping = _first_escaping(workspace, plan.inside)
        if escaping is not None:
            _fail(agent, {"denied": escaping})
        what = f"run {plan.argv[0]!r}"
        os.execvpe(plan.argv[0], plan.argv, plan.env)  # noqa: S606 - no shell is the point
    except OSError as error:
        _fail(agent, {"errno": error.errno, "what": what})
    except BaseException as error:  # noqa: BLE001 - must not fall back into the guard's loop
        _fail(agent, {"errno": errno.EINVAL, "what": f"{what}: {error!r}"})


def _first_escaping(workspace: int, operands: list[tuple[str, bool]]) -> str | None:
    """The first operand that a symbolic link leads out of the workspace."""
    for path, follow in operands:
        flags = os.O_PATH if follow else os.O_PATH | os.O_NOFOLLOW
        try:
            os.close(syscalls.open_beneath(workspace, path, flags))
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.ELOOP):
                return path
    return None


def _fail(agent: socket.socket, report: dict[str, Any]) -> None:
    agent.send(b"X" + json.dumps(report).encode())
    os._exit(_NOT_FOUND)
