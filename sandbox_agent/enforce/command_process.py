"""The process of one command, from the fork by its guard to the execution of its program."""

import contextlib
import errno
import fcntl
import marshal
import os
import socket
import termios
from collections.abc import Iterable
from typing import NamedTuple, NoReturn

from sandbox_agent.enforce import beneath, execution, guard_messages, privileges, syscalls
from sandbox_agent.enforce.filters import seccomp
from sandbox_agent.enforce.guard_messages import Denied, Failed, Step
from sandbox_agent.enforce.profile import Profile
from sandbox_agent.enforce.reads.contents import Contents
from sandbox_agent.enforce.reads.read_profile import Reads
from sandbox_agent.enforce.root_inside import namespace as root_inside

_NOT_FOUND = 127
# Of a plan: at most four pipes, and the document.
_DESCRIPTORS = 5
# Where a program has its `control`: above all that a guard has open.
CONTROL_FD = 200
_TARGETS = (0, 1, 2, CONTROL_FD)


class Plan(NamedTuple):
    """One allowed command, ready to run.

    `program` is the file to execute; a bare name is looked up along the PATH of `env`. `cwd` is
    relative to the workspace. `inside` lists (path, follow) operands, relative to the workspace,
    that must resolve inside it, or in one of the absolute directories `writable`, in which an
    operand may also begin. An operand in one of the directories `volumes` must resolve inside it.
    With `terminal`, the standard streams are a terminal, which becomes the
    controlling terminal. `output_file`, relative to the workspace, is emptied and gets both output
    streams.
    """

    program: str
    argv: list[str]
    env: dict[str, str]
    cwd: str
    inside: list[tuple[str, bool]]
    workspace: str
    terminal: bool = False
    writable: list[str] = []
    volumes: list[str] = []
    output_file: str | None = None


class Pipes(NamedTuple):
    """The command's ends of its three standard streams.

    `control`: one end of a socket to the agent, which the program has as `CONTROL_FD`.
    """

    stdin: int
    stdout: int
    stderr: int
    control: int | None = None

    @property
    def descriptors(self) -> list[int]:
        """All of them, in this order."""
        return [fd for fd in self if fd is not None]


class Prepared(NamedTuple):
    """A command whose process has nothing left to compute: what it enters, checks and executes."""

    number: int
    plan: Plan
    pipes: Pipes
    calls: list[execution.Call]


def become_command(
    prepared: Prepared,
    uid: int,
    profile: Profile,
    starter: socket.socket,
    agent: socket.socket,
    broker: socket.socket | None,
) -> NoReturn:
    """Runs in the command's process up to its exec. It must never become a second guard."""
    try:
        failed = _tried(prepared, uid, profile, starter, broker)
        if failed is not None:
            agent.send(guard_messages.report(failed))
    finally:
        os._exit(_NOT_FOUND)


def receive_plan(starter: socket.socket, number: int) -> tuple[int, Pipes] | None:
    """The document and the pipes of the command with that number; None if there will be none."""
    wanted, most = guard_messages.plan(number), guard_messages.MOST_BYTES
    while True:
        message, descriptors, _, _ = socket.recv_fds(starter, most, _DESCRIPTORS)
        if message == wanted:
            break
        for descriptor in descriptors:
            os.close(descriptor)
        if not message:
            return None
        # It was for an earlier command, whose process has died.
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # `recv_fds` passes no flags on to the kernel
    *pipes, document = descriptors
    return document, Pipes(*pipes)


def read_plan(document: int) -> Plan:
    """The plan in a document, which is closed. Raises: OSError, MemoryError."""
    try:
        whole = os.pread(document, os.fstat(document).st_size, 0)
    finally:
        os.close(document)
    return Plan(*marshal.loads(whole))  # noqa: S302


def prepare(number: int, plan: Plan, pipes: Pipes, profile: Profile) -> Prepared:
    """Computes what the process needs. Raises: ValueError for words that no program can receive."""
    # The process copies every page of the guard's memory that it touches, so it touches few.
    calls = execution.calls(profile.machine, _candidates(plan), plan.argv, plan.env, profile.cookie)
    return Prepared(number, plan, pipes, calls)


def _candidates(plan: Plan) -> list[str]:
    """The files that may be the plan's program, along the PATH as a shell looks it up."""
    if "/" in plan.program:
        return [plan.program]
    return [f"{item or '.'}/{plan.program}" for item in os.get_exec_path(plan.env)]


def _tried(
    prepared: Prepared,
    uid: int,
    profile: Profile,
    starter: socket.socket,
    broker: socket.socket | None,
) -> Failed | Denied | None:
    """Becomes the command, or returns the reason for a failure; None if it is not wanted any more.

    The order of the steps matters. Nothing of the workspace is looked at before the word to go.
    """
    step = Step.START
    plan = prepared.plan
    try:
        os.setsid()
        for target, fd in zip(_TARGETS, prepared.pipes.descriptors, strict=False):
            os.dup2(fd, target)
        if plan.terminal:
            fcntl.ioctl(1, termios.TIOCSCTTY, 0)  # the input may be another one
        privileges.drop_to(uid)
        workspace = os.open(plan.workspace, os.O_PATH | os.O_DIRECTORY)
        if starter.recv(guard_messages.MOST_BYTES) != guard_messages.go(prepared.number):
            return None
        refused = entered(workspace, plan)
        if refused is not None:
            return refused
        if plan.output_file is not None:
            step = Step.OUTPUT
            _print_to(workspace, plan.output_file)
            step = Step.START
        if profile.ruleset is not None and not profile.scoped:
            syscalls.landlock_restrict(profile.ruleset)
        if broker is not None and profile.reads is not None:
            if not _has_right_content(_candidates(plan), profile.reads):
                return Failed(Step.CONTENT, errno.EACCES)
            _be_watched(profile.machine, profile.reads, broker, prepared.number)
        if profile.root is not None:
            root_inside.enter(profile.root.namespace, profile.machine, profile.root.entry)
        step = Step.PROGRAM
        _execute(prepared.calls)
    except OSError as error:
        return Failed(step, error.errno or errno.EINVAL)
    except MemoryError:
        return Failed(step, errno.ENOMEM)
    except Exception:  # noqa: BLE001 - it must not go on as a guard
        return Failed(step, errno.EINVAL)


def entered(workspace: int, plan: Plan) -> Failed | Denied | None:
    """Enters the plan's directory and checks its operands; returns why it can't run."""
    step = Step.DIRECTORY
    try:
        _enter(workspace, plan.cwd)
        step = Step.PATHS
        tops = [plan.workspace, *plan.writable] if plan.writable else []
        escaping = _first_escaping(workspace, plan.inside, tops, plan.volumes)
    except OSError as error:
        return Failed(step, error.errno or errno.EINVAL)
    return None if escaping is None else Denied(escaping)


def _has_right_content(candidates: list[str], reads: Reads) -> bool:
    """Whether each file that may be the program has the manifest's content, if that has it.

    The broker can't compare these files, because it does not see the call that executes one.
    """
    contents = Contents(reads.manifest.digests)
    for path in candidates:
        with contextlib.suppress(OSError):  # there is none, and the kernel decides
            if not contents.right(os.path.realpath(path), os.fsencode(path)):
                return False
    return True


def _be_watched(machine: str, reads: Reads, broker: socket.socket, number: int) -> None:
    """Lets the broker answer what this process and all that it starts open. Raises: OSError."""
    listener = seccomp.install(machine, reads.code, listen=True, undisturbed=True)
    if listener is not None:
        socket.send_fds(broker, [b"%d" % number], [listener])
        os.close(listener)


def _enter(workspace: int, directory: str) -> None:
    """Enters a directory of the workspace without following links out of it, or an absolute one."""
    if directory.startswith("/"):
        os.chdir(directory)
    else:
        os.fchdir(beneath.open_path(workspace, directory))


def _print_to(workspace: int, path: str) -> None:
    """Has standard output and standard error go to a file of the workspace. Raises: OSError."""
    file = beneath.create(workspace, path)
    for target in (1, 2):
        os.dup2(file, target)


def _execute(calls: list[execution.Call]) -> NoReturn:
    """Executes the first program that exists. Raises: OSError."""
    refused = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
    for call in calls:
        try:
            call.make()
        except (FileNotFoundError, NotADirectoryError):
            continue
        except PermissionError as error:
            refused = error  # unless a later candidate exists
    raise refused


def _first_escaping(
    workspace: int,
    operands: list[tuple[str, bool]],
    tops: list[str] | None = None,
    volumes: Iterable[str] = (),
) -> int | None:
    """The index of the first operand that leads out of the workspace or to a missing target.

    It may also lead to one of the directories `tops`, the first of which is the workspace. One that
    begins in a volume may not lead out of that.
    """
    for index, (path, follow) in enumerate(operands):
        if _stays(workspace, path, follow) or _stays_in_volume(volumes, path, follow):
            continue
        if not (tops and _leads_to(tops, path, follow)):
            return index
    return None


def _stays_in_volume(volumes: Iterable[str], path: str, follow: bool) -> bool:
    """Whether the operand begins in one of the volumes, and stays in it."""
    for volume in volumes:
        if path == volume or path.startswith(f"{volume}/"):
            top = os.open(volume, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                return _stays(top, path.removeprefix(volume).lstrip("/") or ".", follow)
            finally:
                os.close(top)
    return False


def _stays(workspace: int, path: str, follow: bool) -> bool:
    """Whether the operand stays in the workspace; if it does not exist, no link leads to it."""
    if path.startswith("/"):
        return False
    try:
        os.close(beneath.open_path(workspace, path, follow))
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.ELOOP):
            return False
        return error.errno != errno.ENOENT or not _dangles(workspace, path)
    return True


def _leads_to(tops: list[str], path: str, follow: bool) -> bool:
    """Whether the operand leads to one of the directories at last, whatever the way."""
    whole = os.path.join(tops[0], path)
    parent, name = os.path.split(whole)
    real = os.path.realpath(whole) if follow else os.path.join(os.path.realpath(parent), name)
    return any(real == top or real.startswith(f"{top}/") for top in tops)


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
