"""Misses of one command, limited in number, and the messages in which a broker reports them. Pure.

A message is a marshalled tuple in a SOCK_SEQPACKET message. `N` numbers the guard's commands.

    broker → agent  ("listener", N)           with the descriptor with which calls are answered
                    ("call", N, Notice)       an execution that may proceed when it is on record,
                                              or a signal
                    ("miss", N, Miss, count)  the miss happened `count` times
                    ("over", N)               nothing more comes of that command
"""

import marshal
from typing import Any, NamedTuple

# Of a path, in UTF-8.
LONGEST_PATH = 4096
# Longer than any message.
MOST_BYTES = 4 * LONGEST_PATH + 4096
# The different misses of a command that are reported individually; others are counted. Where they
# are allowed, they show what a manifest has to list.
MOST_DETAILED = 32
MOST_ALLOWED = 1000
LISTENER, CALL, MISS, OVER = "listener", "call", "miss", "over"


class Miss(NamedTuple):
    """A read outside the manifest, by a process of the sandbox; `denied` unless it was let pass.

    `changed`: the manifest has the path, and the file there has another content.
    """

    path: str
    syscall: str
    program: str
    pid: int
    denied: bool
    changed: bool = False


class Misses:
    """Those of one command: which are reported individually, and how many were only counted."""

    def __init__(self, most: int = MOST_DETAILED) -> None:
        """`most` different ones are reported individually."""
        self._left = most
        self._told: set[tuple[str, str]] = set()
        self._counted = 0
        self._last: Miss | None = None

    def take(self, miss: Miss) -> bool:
        """Whether to report this miss individually; if not, it is counted."""
        like = miss.path, miss.syscall
        if self._left and like not in self._told:
            self._left -= 1
            self._told.add(like)
            return True
        self._counted += 1
        self._last = miss
        return False

    @property
    def counted(self) -> int:
        """The number of misses that are only counted and not reported yet."""
        return self._counted

    def drain(self) -> tuple[Miss, int] | None:
        """The last counted miss and the number since the last call; None if there was none."""
        if self._last is None:
            return None
        last, count = self._last, self._counted
        self._last, self._counted = None, 0
        return last, count


def cut_path(path: bytes) -> str:
    """The path as valid UTF-8 of at most LONGEST_PATH bytes; other bytes are backslash-escaped."""
    text = path.decode("utf-8", "backslashreplace").encode()
    return text[:LONGEST_PATH].decode("utf-8", "ignore")


def encode(kind: str, number: int, *more: Any) -> bytes:
    """One message; a named tuple becomes a plain one."""
    plain = (tuple(each) if isinstance(each, tuple) else each for each in more)
    return marshal.dumps((kind, number, *plain))


def decode(message: bytes) -> tuple[Any, ...]:
    """The members of a message that a broker encoded."""
    members: tuple[Any, ...] = marshal.loads(message)  # noqa: S302 - from our own process
    return members
