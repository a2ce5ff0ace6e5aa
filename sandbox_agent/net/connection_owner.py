"""Finds in /proc which program has a connection to a loopback port, as the session's user.

The answer is advice: a program can run under any name, and can pass its connection on.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence

# The most descriptors that a search looks at, and its longest time.
_MOST_DESCRIPTORS = 8192
_SECONDS = 0.1
_LOOPBACK = ("0100007F", "0000000000000000FFFF00000100007F")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")
# Programs that run a script; the script's name is then the answer.
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|nodejs|php|bash|dash|sh|busybox)[0-9.]*")
_GIT_TRANSPORT = "git-remote-"


def program_of(port: int, server: int, uid: int, proc: str = "/proc") -> str | None:
    """The name of the program that is connected from `port` to `server`, both on loopback.

    None if it is unknown, or does not belong to the user. `proc` is for tests.
    """
    inode = None
    for table in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/self/net/{table}", encoding="ascii") as file:
                inode = inode_of(file.read(), port, server, uid)
        except (OSError, ValueError):
            continue
        if inode is not None:
            break
    if inode is None:
        return None
    wanted, until = f"socket:[{inode}]", time.monotonic() + _SECONDS
    for number, (pid, link) in enumerate(_descriptors(proc, uid)):
        if link == wanted:
            return _name_of_process(f"{proc}/{pid}")
        if number >= _MOST_DESCRIPTORS or time.monotonic() > until:
            break
    return None


def inode_of(table: str, port: int, server: int, uid: int) -> int | None:
    """The inode of the user's connection in one of the kernel's tables. Raises: ValueError."""
    for line in table.splitlines()[1:]:
        fields = line.split()
        if len(fields) < 10 or not (_is_at(fields[1], port) and _is_at(fields[2], server)):
            continue
        inode = int(fields[9])
        return inode if int(fields[7]) == uid and inode else None
    return None


def live_ports(table: str, server: int) -> Iterator[int]:
    """The ports of connections to `server`, both on loopback, that a process still has.

    `table` is one of the kernel's. Raises: ValueError.
    """
    for line in table.splitlines()[1:]:
        fields = line.split()
        # Without a process, a socket has no inode.
        if len(fields) >= 10 and _is_at(fields[2], server) and int(fields[9]):
            yield int(fields[1].partition(":")[2], 16)


def name_of(executable: str, words: Sequence[str]) -> str | None:
    """A program's name, from its file and its words; None if the name has unusual characters."""
    name = os.path.basename(executable)
    if _INTERPRETER.fullmatch(name):
        name = _script(words) or name
    if name.startswith(_GIT_TRANSPORT):
        name = "git"
    return name if _NAME.fullmatch(name) else None


def _script(words: Sequence[str]) -> str | None:
    """What an interpreter runs: a script, a module, or the name that it gives itself."""
    if len(words) == 1 and " " in words[0]:  # a program such as npm replaces its words
        return os.path.basename(words[0].partition(" ")[0])
    arguments = iter(words[1:])
    for word in arguments:
        if word == "-m":
            return next(arguments, "").partition(".")[0] or None
        if word in ("-c", "-e", "-"):
            return None
        if not word.startswith("-"):
            return os.path.basename(word)
    return None


def _is_at(address: str, port: int) -> bool:
    host, _, number = address.partition(":")
    return host in _LOOPBACK and int(number, 16) == port


def _descriptors(proc: str, uid: int) -> Iterator[tuple[str, str]]:
    """The open descriptors of the user's processes, the latest processes first."""
    pids = sorted((int(name) for name in os.listdir(proc) if name.isdigit()), reverse=True)
    for pid in pids:
        try:
            if os.stat(f"{proc}/{pid}").st_uid != uid:
                continue
            descriptors = os.listdir(f"{proc}/{pid}/fd")
        except OSError:  # it has ended, or can't be looked at
            continue
        for descriptor in descriptors:
            try:
                yield str(pid), os.readlink(f"{proc}/{pid}/fd/{descriptor}")
            except OSError:
                continue


def _name_of_process(directory: str) -> str | None:
    try:
        executable = os.readlink(f"{directory}/exe")
        with open(f"{directory}/cmdline", "rb") as file:
            words = file.read(4096).decode("utf-8", "replace").rstrip("\0").split("\0")
    except OSError:
        return None
    return name_of(executable.removesuffix(" (deleted)"), words)
