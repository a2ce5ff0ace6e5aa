"""The user namespace of a session whose commands are root inside: made once, entered by each.

It maps uid and gid 0 to the session's own, and nothing else. So a command's root has rights over
the session's own files and processes only, and its capabilities count nowhere else. The agent and
the guards stay outside: nothing in the namespace may signal, trace or read them.
"""

import ctypes
import errno
import os

from sandbox_agent.decide.mounted_agent import ROOT_INSIDE
from sandbox_agent.decide.protocol import Configuration
from sandbox_agent.enforce import privileges, syscalls
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.profile import ConfinementError

_LIBC = ctypes.CDLL(None, use_errno=True)
NEW_USER = 0x10000000
_BOUNDING_DROP = 24
_CAPABILITIES_VERSION = 0x20080522
_NUMBERS = 64
_TRIAL_UID = 65_537
# CHOWN, DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER, FSETID, SETGID and SETUID: what package managers
# need for files. All others go, from the bounding set too.
KEPT = frozenset({0, 1, 2, 3, 4, 6, 7})
_REASONS = {
    errno.EPERM: (
        "the engine's profile of system calls, AppArmor or a setting of the kernel "
        "(kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns) forbids "
        "user namespaces"
    ),
    errno.EACCES: "AppArmor or another security module forbids user namespaces",
    errno.ENOSPC: "this host lets nobody have a user namespace: raise user.max_user_namespaces",
    errno.EUSERS: "user namespaces are nested too deeply here",
    errno.EINVAL: "the kernel has no user namespaces",
    errno.ENOSYS: "the kernel or the runtime in front of it has no user namespaces",
}


def of_session(configuration: Configuration) -> int | None:
    """What `make` returns if its commands are root inside.

    Raises: ConfinementError with the reason if there is none.
    """
    if not configuration.root:
        return None
    try:
        return make(configuration.uid)
    except OSError as error:
        raise ConfinementError(f"commands can't be root inside: {explained(error)}") from error


def make(uid: int) -> int:
    """The descriptor of a new namespace that belongs to that user. Raises: OSError.

    Nothing of the session runs yet: the process that makes it is that user's, and has a copy of the
    agent's memory.
    """
    ready, tell = os.pipe2(os.O_CLOEXEC)
    wait, release = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(release)
        _hold(uid, tell, wait)
    os.close(tell)
    os.close(wait)
    try:
        answer = os.read(ready, 16)
        if answer != b"0":
            number = int(answer) if answer.isdigit() else errno.EIO
            raise OSError(number, os.strerror(number))
        # Its owner has the right to look at its process.
        with privileges.as_user(uid):
            return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(ready)
        os.close(release)
        os.waitpid(child, 0)


def _hold(uid: int, tell: int, wait: int) -> None:
    """Runs in a process of its own, which ends when the agent has the namespace."""
    number = errno.EIO
    try:
        privileges.drop_to(uid)
        _checked(_LIBC.unshare(NEW_USER))
        # A process that has changed its user does not own its files in /proc until it says so.
        syscalls.show_memory()
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {uid} 1"),
            ("gid_map", f"0 {uid} 1"),
        ):
            _write(f"/proc/self/{name}", text)
        number = 0
    except OSError as error:
        number = error.errno or errno.EIO
    finally:
        try:
            os.write(tell, b"%d" % number)
            os.read(wait, 1)
        finally:
            os._exit(0)


def enter(namespace: int, machine: str, mark: tuple[int, int]) -> None:
    """Makes this process, which is the session's user already, root in it with few capabilities.

    `mark` are the unused arguments with which the guard's filter lets the call pass. Raises:
    OSError; the process must end then.
    """
    number = ARCHITECTURES[machine].calls["setns"]
    words = [ctypes.c_long(word) for word in (namespace, NEW_USER, *mark)]
    _checked(int(_LIBC.syscall(number, *words)))
    for capability in range(_NUMBERS):
        # The first number that the kernel does not know ends them.
        if capability not in KEPT and _LIBC.prctl(_BOUNDING_DROP, capability, 0, 0, 0) < 0:
            if ctypes.get_errno() != errno.EINVAL:
                _checked(-1)
            break
    kept = sum(1 << capability for capability in KEPT)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION, 0)
    sets = (ctypes.c_uint32 * 6)(kept, kept, 0, 0, 0, 0)  # effective, permitted, inheritable
    _checked(_LIBC.capset(header, sets))


def main() -> None:
    """Prints why commands in this container can't be root inside, or that they can."""
    print(refusal(_TRIAL_UID) or ROOT_INSIDE)


def refusal(uid: int) -> str | None:
    """Why commands can't be root inside; None if a process has entered a namespace of that user."""
    try:
        namespace = make(uid)
        child = os.fork()
        if child == 0:
            _try(namespace, uid)
        _, status = os.waitpid(child, 0)
        os.close(namespace)
    except OSError as error:
        return explained(error)
    number = os.waitstatus_to_exitcode(status)
    return None if number == 0 else explained(OSError(number, os.strerror(abs(number))))


def _try(namespace: int, uid: int) -> None:
    number = errno.EIO
    try:
        privileges.drop_to(uid)
        enter(namespace, os.uname().machine, (0, 0))
        number = 0 if (os.getuid(), os.getgid()) == (0, 0) else errno.EPERM
    except OSError as error:
        number = error.errno or errno.EIO
    finally:
        os._exit(number)


def explained(error: OSError) -> str:
    """Why there is no namespace, for the operator."""
    return _REASONS.get(error.errno or 0, error.strerror or type(error).__name__)


def _write(path: str, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(handle, text.encode())
    finally:
        os.close(handle)


def _checked(value: int) -> int:
    return syscalls.checked(value)
