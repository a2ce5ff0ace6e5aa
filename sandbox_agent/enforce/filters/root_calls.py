"""What the filter decides for commands that are root of a user namespace with one user.

The namespace has no other user or group, so the kernel refuses to give a file away (EINVAL), which
ends package managers. The filter answers such calls with success, and nothing happens: other owners
are not kept. The one call that enters the namespace is the guard's.
"""

import errno

from sandbox_agent.enforce.filters.bpf import (
    ALLOWED,
    JUMP_EQUAL,
    Block,
    loaded,
    refused,
    returned,
)

_DONE = returned(refused(0))
# Where the owner is among the arguments; the group follows.
_OWNER_AT = {"chown": 1, "fchown": 1, "lchown": 1, "fchownat": 2}
_ROOT, _UNCHANGED = 0, 0xFFFFFFFF
_NEW_USER = 0x10000000


def blocks(mark: tuple[int, int]) -> list[tuple[str, Block]]:
    """The checks; they come before all others. `mark` are the entering call's unused arguments."""
    owners = [(name, _owner(at)) for name, at in _OWNER_AT.items()]
    return [("setns", _entry(mark)), *owners, ("setgroups", [_DONE])]


def _entry(mark: tuple[int, int]) -> Block:
    low, high = mark
    return [
        loaded(1),
        (JUMP_EQUAL, 0, 5, _NEW_USER),
        loaded(2),
        (JUMP_EQUAL, 0, 3, low),
        loaded(3),
        (JUMP_EQUAL, 0, 1, high),
        ALLOWED,
        returned(refused(errno.EPERM)),
    ]


def _owner(at: int) -> Block:
    """The kernel decides about root's own files; for other owners, nothing happens."""
    return [
        loaded(at),
        (JUMP_EQUAL, 1, 0, _ROOT),
        (JUMP_EQUAL, 0, 3, _UNCHANGED),
        loaded(at + 1),
        (JUMP_EQUAL, 2, 0, _ROOT),
        (JUMP_EQUAL, 1, 0, _UNCHANGED),
        _DONE,
        ALLOWED,
    ]
