"""System calls that the standard library does not have. x86_64 and aarch64 share the numbers."""

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

# The path may not leave the directory it starts from, nor pass through /proc's magic links, nor
# from one mount to another.
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
    """The result of a system call made through ctypes. Raises: OSError where it failed."""
    if value < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return value


def become_subreaper() -> None:
    """Orphans below this process become its children. Raises: OSError."""
    checked(_LIBC.prctl(_PRCTL_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def hide_memory() -> None:
    """No process of another user can look into this one's memory, nor a core dump have it.

    A program that is executed is not hidden any more. Raises: OSError.
    """
    checked(_LIBC.prctl(_PRCTL_SET_DUMPABLE, 0, 0, 0, 0))


def gain_no_privileges() -> None:
    """From now on no program gives more than its caller has. Raises: OSError."""
    checked(_LIBC.prctl(_PRCTL_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def deny_writable_code() -> None:
    """From now on no memory can be writable and executable, nor become executable; kept over exec.

    Raises: OSError, on kernels before 6.3 too.
    """
    checked(_LIBC.prctl(_PRCTL_SET_MDWE, _MDWE_REFUSE_EXEC_GAIN, 0, 0, 0))


def can_deny_writable_code() -> bool:
    """Whether this kernel has it."""
    return int(_LIBC.prctl(_PRCTL_GET_MDWE, 0, 0, 0, 0)) >= 0


def open_beneath(
    directory: int, path: str, flags: int, mode: int = 0, *, links: bool = True
) -> int:
    """Opens `path` relative to `directory`; symbolic links are followed only inside it.

    Without `links` none is followed at all: ELOOP.
    The kernel resolves the whole path in one call, so there is no race to win.
    Raises: OSError, with EXDEV where the path would leave the directory.
    """
    resolve = RESOLVE_BENEATH if links else RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS
    return _open(directory, path, flags, mode, resolve)


def open_in_root(root: int, path: str, flags: int) -> int:
    """Opens `path` as if `root` were the root directory, for absolute links and `..` as well.

    Links of the kernel's own, in /proc, are not followed. Raises: OSError.
    """
    return _open(root, path, flags, 0, RESOLVE_IN_ROOT)


def _open(directory: int, path: str, flags: int, mode: int, resolve: int) -> int:
    how = _OpenHow(flags | os.O_CLOEXEC, mode, resolve | RESOLVE_NO_MAGICLINKS)
    raw = os.fsencode(path)
    while True:
        fd = _LIBC.syscall(_OPENAT2, directory, raw, ctypes.byref(how), ctypes.sizeof(how))
        # EAGAIN: something was renamed while the kernel checked a `..`; nothing was decided.
        if fd >= 0 or ctypes.get_errno() != 11:
            return checked(int(fd), path)


def open_on_mount(directory: int, path: bytes, flags: int) -> int:
    """Opens `path`, absolute or relative to `directory`, if it stays on the mount it begins on.

    Raises: OSError, with EXDEV or ELOOP where it does not.
    """
    how = _OpenHow(flags | os.O_CLOEXEC, 0, RESOLVE_NO_XDEV | RESOLVE_NO_MAGICLINKS)
    fd = _LIBC.syscall(_OPENAT2, directory, path, ctypes.byref(how), ctypes.sizeof(how))
    return checked(int(fd))


def landlock_abi() -> int:
    """The kernel's Landlock version; 0 when it has none."""
    return max(0, int(_LIBC.syscall(_LANDLOCK_CREATE_RULESET, None, 0, 1)))


def landlock_ruleset(handled: int, scoped: int) -> int:
    """A ruleset, as a file descriptor, that denies `handled` and keeps `scoped` inside.

    Raises: OSError.
    """
    attr = _RulesetAttr(handled, 0, scoped)
    fd = _LIBC.syscall(_LANDLOCK_CREATE_RULESET, ctypes.byref(attr), ctypes.sizeof(attr), 0)
    return checked(int(fd))


def landlock_allow(ruleset: int, access: int, path_fd: int) -> None:
    """Permits `access` at, and below, what `path_fd` is open on. Raises: OSError."""
    attr = _PathBeneathAttr(access, path_fd)
    checked(
        int(
            _LIBC.syscall(
                _LANDLOCK_ADD_RULE, ruleset, _LANDLOCK_RULE_PATH_BENEATH, ctypes.byref(attr), 0
            )
        )
    )


def landlock_restrict(ruleset: int) -> None:
    """Puts this process into a new domain of that ruleset. Raises: OSError."""
    checked(int(_LIBC.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, 0)))


def borrow_file_identity(uid: int) -> None:
    """This thread opens files as that user; with 0 as root again."""
    _LIBC.setfsgid(uid)
    _LIBC.setfsuid(uid)
