"""System calls that the standard library lacks. x86_64 and aarch64 share these numbers."""

import ctypes
import os

_LIBC = ctypes.CDLL(None, use_errno=True)

_PRCTL_SET_DUMPABLE = 4
_PRCTL_SET_CHILD_SUBREAPER = 36
_PRCTL_SET_NO_NEW_PRIVS = 38
_PRCTL_SET_MDWE = 65
_PRCTL_GET_MDWE = 66
_MDWE_REFUSE_EXEC_GAIN = 1
_OPENAT2 = 437
_LANDLOCK_CREATE_RULESET = 444
_LANDLOCK_ADD_RULE = 445
_LANDLOCK_RESTRICT_SELF = 446
_LANDLOCK_RULE_PATH_BENEATH = 1

# The path may not leave its starting directory, pass through /proc's magic links, or cross mounts.
RESOLVE_BENEATH = 0x08
RESOLVE_IN_ROOT = 0x10
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_SYMLINKS = 0x04


class _OpenHow(ctypes.Structure):
    _fields_ = (
        ("flags", ctypes.c_uint64),
        ("mode", ctypes.c_uint64),
        ("resolve", ctypes.c_uint64),
    )


class _RulesetAttr(ctypes.Structure):
    _fields_ = (
        ("handled_access_fs", ctypes.c_uint64),
        ("handled_access_net", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


class _PathBeneathAttr(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def checked(value: int, path: str | None = None) -> int:
    """The result of a system call made through ctypes. Raises: OSError if it failed."""
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return value


def become_subreaper() -> None:
    """Makes orphans below this process its children. Raises: OSError."""
    checked(_LIBC.prctl(_PRCTL_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def hide_memory() -> None:
    """Hides this process's memory from processes of other users and from core dumps.

    A program that it executes is not hidden any more. Raises: OSError.
    """
    checked(_LIBC.prctl(_PRCTL_SET_DUMPABLE, 0, 0, 0, 0))


def show_memory() -> None:
    """Makes this process's files in /proc its own user's; undoes `hide_memory`. Raises: OSError."""
    checked(_LIBC.prctl(_PRCTL_SET_DUMPABLE, 1, 0, 0, 0))


def gain_no_privileges() -> None:
    """Ensures that no program gains more privileges than its caller. Raises: OSError."""
    checked(_LIBC.prctl(_PRCTL_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def deny_writable_code() -> None:
    """Ensures that memory is never writable and executable at once, and never becomes executable.

    This survives exec. Raises: OSError, also on kernels before 6.3.
    """
    checked(_LIBC.prctl(_PRCTL_SET_MDWE, _MDWE_REFUSE_EXEC_GAIN, 0, 0, 0))


def can_deny_writable_code() -> bool:
    """Whether this kernel supports `deny_writable_code`."""
    return int(_LIBC.prctl(_PRCTL_GET_MDWE, 0, 0, 0, 0)) >= 0


def open_beneath(
    directory: int, path: str, flags: int, mode: int = 0, *, links: bool = True
) -> int:
    """Opens `path` relative to `directory`; follows symbolic links only inside it.

    Without `links`, no link is followed: ELOOP. The kernel resolves the whole path in one call, so
    there is no race. Raises: OSError, with EXDEV if the path would leave the directory.
    """
    resolve = RESOLVE_BENEATH if links else RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS
    return _open(directory, path, flags, mode, resolve)


def open_in_root(root: int, path: str, flags: int) -> int:
    """Opens `path` as if `root` were the root directory, also for absolute links and `..`.

    The kernel's own links in /proc are not followed. Raises: OSError.
    """
    return _open(root, path, flags, 0, RESOLVE_IN_ROOT)


def _open(directory: int, path: str, flags: int, mode: int, resolve: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve | RESOLVE_NO_MAGICLINKS)
    raw = os.fsencode(path)
    while True:
        fd = _LIBC.syscall(_OPENAT2, directory, raw, ctypes.byref(how), ctypes.sizeof(how))
        # EAGAIN: a rename happened while the kernel checked a `..`; nothing was decided.
        if fd >= 0 or ctypes.get_errno() != 11:
            return checked(int(fd), path)


def open_on_mount(directory: int, path: bytes, flags: int, mode: int = 0) -> int:
    """Opens `path`, absolute or relative to `directory`, if it stays on the mount where it begins.

    Raises: OSError, with EXDEV or ELOOP if it does not.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, mode, RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS)
    fd = _LIBC.syscall(_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how))
    return checked(int(fd))


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 if it has none."""
    return max(0, int(_LIBC.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)))


def landlock_ruleset(handled: int, scoped: int) -> int:
    """Creates a ruleset that denies `handled` and keeps `scoped` inside the domain.

    Returns its file descriptor. Raises: OSError.
    """
    attr = _RulesetAttr(handled, 0, scoped)
    fd = _LIBC.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(attr), ctypes.sizeof(attr), 0)
    return checked(int(fd))


def landlock_allow(ruleset: int, access: int, path_fd: int) -> None:
    """Permits `access` to what `path_fd` is open on and everything below it. Raises: OSError."""
    attr = _PathBeneathAttr(access, path_fd)
    checked(
        int(
            _LIBC.syscall(
                _LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(attr), 0
            )
        )
    )


def landlock_restrict(ruleset: int) -> None:
    """Puts this process into a new domain with that ruleset. Raises: OSError."""
    checked(int(_LIBC.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0)))


def borrow_file_identity(uid: int) -> None:
    """Makes this thread open files as that user; 0 returns to root."""
    _LIBC.setfsgid(uid)
    _LIBC.setfsuid(uid)
