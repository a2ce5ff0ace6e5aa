"""Landlock: which files a command can read, write and execute, and whom it can signal.

A ruleset is built once and entered by every guard. What it does not name is denied: the
access rights that a kernel of a later version adds stay with the mounts and the uid.
"""

import errno
import os
import stat
from typing import NamedTuple

from sandbox_agent.confine import syscalls

# Scopes came with this version: abstract UNIX sockets and signals stay inside the domain.
SCOPES_ABI = 6
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
_IOCTL_DEV = 1 << 15

READ = READ_FILE | READ_DIR
# Everything that can be done to a workspace's files, but for executing them and making devices.
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
# What may be granted on a file that is no directory.
_ON_FILES = EXECUTE | WRITE_FILE | READ_FILE | _TRUNCATE | _IOCTL_DEV
_FIRST = (1 << 13) - 1
# The version of the interface that brought each later right.
_SINCE = {2: _REFER, 3: _TRUNCATE, 5: _IOCTL_DEV}


class Rule(NamedTuple):
    """`access` to the file `path`, or to everything below that directory."""

    path: str
    access: int


def handled(abi: int) -> int:
    """Every right that this version of the interface can deny."""
    rights = _FIRST
    for since, right in _SINCE.items():
        if abi >= since:
            rights |= right
    return rights


def ruleset(abi: int, rules: list[Rule] | None) -> int | None:
    """A ruleset with scopes, where the kernel has them, and with the rules unless they are None.

    Returns None where it would forbid nothing. A path that is not there is left out.
    Raises: OSError.
    """
    scoped = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if abi >= SCOPES_ABI else 0
    rights = 0 if rules is None else handled(abi)
    if not scoped and not rights:
        return None
    made = syscalls.landlock_ruleset(rights, scoped)
    try:
        for rule in rules or ():
            _allow(made, rule, rights)
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
    try:
        is_directory = stat.S_ISDIR(os.fstat(fd).st_mode)
        granted = rule.access & rights & (rights if is_directory else _ON_FILES)
        syscalls.landlock_allow(made, granted, fd)
    finally:
        os.close(fd)
