"""The filter of a session that may read a manifest's files only: it reports every open for reading.

A call that opens for writing alone, or for neither (O_PATH), returns no content and is not
reported. Calls that open files in other ways are denied by the filter that every command has; what
that one would report is reported here, because a process has one listener.
"""

import os

from sandbox_agent.enforce.filters import bpf, own_threads, signals
from sandbox_agent.enforce.filters.architectures import ARCHITECTURES
from sandbox_agent.enforce.filters.bpf import (
    ALLOWED,
    AND,
    JUMP_ANY_BIT,
    JUMP_EQUAL,
    USER_NOTIF,
    Block,
    loaded,
    returned,
)

# Where the flags are among the arguments; x86_64 alone has the first call.
_FLAGS_AT = {"open": 1, "openat": 2}
_UNUSED_BY_EXECVE = 3


def program(machine: str, cookie: tuple[int, int], *, with_signals: bool = False) -> bytes:
    """The filter's instructions; a call of execve with the cookie is not reported.

    `with_signals`: signals to others are reported.
    Raises: KeyError for an architecture without numbers.
    """
    blocks = [(name, _opens(at)) for name, at in _FLAGS_AT.items()]
    blocks += own_threads.blocks(USER_NOTIF)
    if with_signals:
        blocks += signals.blocks(None)
    blocks.append(("execve", bpf.unless_marked(_UNUSED_BY_EXECVE, cookie)))
    return bpf.program(ARCHITECTURES[machine], blocks)


def _opens(flags_at: int) -> Block:
    return [
        loaded(flags_at),
        (JUMP_ANY_BIT, 3, 0, os.O_PATH),
        (AND, 0, 0, os.O_ACCMODE),
        (JUMP_EQUAL, 1, 0, os.O_WRONLY),
        returned(USER_NOTIF),
        ALLOWED,
    ]
