"""Landlock: which files a command can read, write and execute, and which processes it can signal.

A ruleset is built once, and every guard enters it. What it does not name is denied. Access rights
that later kernel versions add are not covered here; the mounts and the uid still apply to them.
"""

import errno
import os
import stat
from collections.abc import Iterable
from typing import NamedTuple

from sandbox_agent.decide.facilities import Kernel
from sandbox_agent.enforce import syscalls

_SCOPE_ABSTRACT_UNIX_SOCKET = 1
_SCOPE_SIGNAL = 2

EXECUTE = 1 << 0
WRITE_FILE = 1 << 1
READ_FILE = 1 << 2
READ_DIR = 1 << 3
_REMOVE_DIR = 1 << 4
_REMOVE_FILE = 1 << 5
_MAKE_CHAR = 1 << 6
_MAKE_DIR = 1 << 7
_MAKE_REG = 1 << 8
_MAKE_SOCK = 1 << 9
_MAKE_FIFO = 1 << 10
_MAKE_BLOCK = 1 << 11
_MAKE_SYM = 1 << 12
_REFER = 1 << 13
_TRUNCATE = 1 << 14
IOCTL_DEV = 1 << 15

READ = READ_FILE | READ_DIR
# All rights on a workspace's files, except execution and the creation of devices.
CHANGE = (
    READ
    | WRITE_FILE
    | _REMOVE_DIR
    | _REMOVE_FILE
    | _MAKE_DIR
    | _MAKE_REG
    | _MAKE_SOCK
    | _MAKE_FIFO
    | _MAKE_SYM
    | _REFER
    | _TRUNCATE
)
# The rights to deny if only changes are restricted, and everything may be read and executed.
WRITES = (CHANGE & ~READ) | _MAKE_CHAR | _MAKE_BLOCK
# The rights that may be granted on a file that is not a directory.
_ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | IOCTL_DEV
_FIRST = (1 << 13) - 1
# The interface version that added each later right.
_SINCE = {1: _FIRST, 2: _REFER, 3: _TRUNCATE, 5: IOCTL_DEV}


class Rule(NamedTuple):
    """Grants `access` to the file `path`, or to everything below that directory."""

    path: str
    access: int


def handled(kernel: Kernel) -> int:
    """All rights that this kernel's version of the interface can deny."""
    rights = 0
    for since, right in _SINCE.items():
        if kernel.landlock >= since:
            rights |= right
    return rights


class Opened(NamedTuple):
    """Grants `access` to the file that the O_PATH descriptor `fd` is, or below that directory."""

    fd: int
    access: int


def ruleset(
    kernel: Kernel, rules: list[Rule], rights: int, opened: Iterable[Opened] = ()
) -> int | None:
    """A ruleset that denies those `rights` that no rule grants, with scopes if the kernel has them.

    Returns None if this kernel can deny none of the rights. A path that does not exist is skipped.
    The descriptors of `opened` are closed, one before the next is asked for. Raises: OSError.
    """
    scoped = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if kernel.scopes else 0
    rights &= handled(kernel)
    if not scoped and not rights:
        return None
    made = syscalls.landlock_ruleset(rights, scoped)
    try:
        for rule in rules:
            _allow(made, rule, rights)
        for item in opened:
            _allow_opened(made, item, rights)
    except OSError:
        os.close(made)
        raise
    return made


def _allow(made: int, rule: Rule, rights: int) -> None:
    try:
        fd = os.open(rule.path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return
        raise
    _allow_opened(made, Opened(fd, rule.access), rights)


def _allow_opened(made: int, opened: Opened, rights: int) -> None:
    try:
        is_directory = stat.S_ISDIR(os.fstat(opened.fd).st_mode)
        granted = opened.access & rights & (rights if is_directory else _ON_FILES)
        syscalls.landlock_allow(made, granted, opened.fd)
    finally:
        os.close(opened.fd)
