"""Starts a command's process without running Python in it.

After a fork, Python copies each page of its parent that it touches, which takes longer than all
system calls of a start together. So the guard looks at the workspace itself, and C code does the
rest in the process: the interpreter's own, which `subprocess` uses. Its call of `execve` is
reported to the agent like any other, and waits there until the command may run.
"""

import _posixsubprocess
import errno
import os
import sys
from collections.abc import Callable

from sandbox_agent.enforce.command_process import Pipes, Plan
from sandbox_agent.enforce.guard_messages import Failed, Step
from sandbox_agent.enforce.profile import Profile

# Private, but unchanged from Python 3.11 on; it is called by position.
_fork_exec: Callable[..., int] = _posixsubprocess.fork_exec
_ARGUMENTS = [
    *("args", "executable_list", "close_fds", "pass_fds", "cwd", "env"),
    *("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite"),
    *("errpipe_read", "errpipe_write", "restore_signals", "call_setsid", "pgid_to_set"),
    *("gid", "extra_groups", "uid", "child_umask", "preexec_fn", "allow_vfork"),
]
# What C code exits with if it could not execute the program.
_FAILED_STATUS = 255 << 8
# What it says then: "OSError:<errno in hexadecimal>:", and a word if it did not come to `execve`.
_MOST_SAID = 64


def applies(profile: Profile, plan: Plan) -> bool:
    """Whether a guard with this profile starts that command here. Guard and agent must agree.

    A terminal needs a further step in the process, and so do a kernel without Landlock scopes, an
    output file, which only a recorded start may empty, and the namespace of commands that are root
    inside; a broker takes the listener from it.
    Without reports of `execve`, nothing would wait.
    """
    return (
        _available()
        and profile.cookie is not None
        and profile.reads is None
        and profile.root is None
        and (profile.scoped or profile.ruleset is None)
        and not plan.terminal
        and plan.output_file is None
        and "/" in plan.program
    )


def _available() -> bool:
    """Whether the interpreter's function takes the arguments that are known here."""
    if sys.version_info[:2] == (3, 11):  # it does not say what it takes
        return True
    signature = _posixsubprocess.fork_exec.__text_signature__ or ""
    names = [name.strip() for name in signature.strip("()").split(",")]
    return [name for name in names if name.isidentifier()] == _ARGUMENTS


class Spawner:
    """Starts processes for one guard, one after another."""

    def __init__(self) -> None:
        self._said, self._say = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)

    def spawn(self, plan: Plan, pipes: Pipes, uid: int) -> int:
        """The process id. It has a session, user and streams of its own, in the present directory.

        Raises: OSError if there is no room for a process; ValueError for words with a NUL.
        """
        env = [os.fsencode(f"{name}={value}") for name, value in plan.env.items()]
        return _fork_exec(
            [os.fsencode(word) for word in plan.argv],
            (os.fsencode(plan.program),),
            False,  # close_fds: all others are closed by `execve`
            (),  # pass_fds
            None,  # cwd
            env,
            pipes.stdin,
            *(-1, -1),  # the other ends of the pipes
            pipes.stdout,
            -1,
            pipes.stderr,
            self._said,
            self._say,
            False,  # restore_signals: the guard has the usual ones
            True,  # call_setsid
            -1,  # pgid_to_set
            uid,  # gid
            [],  # extra_groups
            uid,
            -1,  # umask
            None,  # preexec_fn
            False,  # allow_vfork: not with a change of user
        )

    def failure(self, status: int) -> Failed | None:
        """Why the process that ended with that status did not execute its program, if so."""
        if status != _FAILED_STATUS:
            return None
        try:
            said = os.read(self._said, _MOST_SAID)
        except BlockingIOError:
            return None  # the program itself has ended with it
        _, number, early = said.split(b":", 2)
        return Failed(Step.START if early else Step.PROGRAM, int(number, 16) or errno.EINVAL)
