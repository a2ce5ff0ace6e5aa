"""Checks of the filter that stand for what newer kernels decide themselves. They keep the promise.

*Writable code* (`PR_SET_MDWE`, since 6.3): memory is never writable and executable, neither at once
nor one after the other. A filter can't know what memory was before, so it refuses every `mprotect`
with execution, also one that changes nothing.

*Truncation* (Landlock, since 6.2): `truncate`, and opening with O_TRUNC but not for writing, need
no right to write that an older Landlock checks. Where nothing else restricts writing, the files
that only these could reach are on mounts that nobody can write to.
"""

import errno
import os

from sandbox_agent.enforce.filters.bpf import (
    ALLOWED,
    AND,
    JUMP_ANY_BIT,
    JUMP_EQUAL,
    Block,
    loaded,
    refused,
    returned,
)

# What the kernel and Landlock answer.
_EACCES = refused(errno.EACCES)
_PROT_WRITE, _PROT_EXEC = 2, 4
# Where the flags are among the arguments; x86_64 alone has the first call.
_FLAGS_AT = {"open": 1, "openat": 2}

# The end of a check of `mmap`, at an executable mapping.
WRITABLE_CODE: Block = [loaded(2), (JUMP_ANY_BIT, 0, 1, _PROT_WRITE), returned(_EACCES)]
_EXECUTABLE: Block = [loaded(2), (JUMP_ANY_BIT, 0, 1, _PROT_EXEC), returned(_EACCES), ALLOWED]
GAINED_CODE: list[tuple[str, Block]] = [("mprotect", _EXECUTABLE), ("pkey_mprotect", _EXECUTABLE)]


def truncation(*, opens: bool) -> list[tuple[str, Block]]:
    """Refuses truncating by a path. Without `opens`, a broker judges the opens that matter."""
    blocks = [(name, _open(at)) for name, at in _FLAGS_AT.items()] if opens else []
    return [("truncate", [returned(_EACCES)]), *blocks]


def truncates_unseen(flags: int) -> bool:
    """Whether an open with these flags truncates without being one for writing."""
    writes = flags & os.O_ACCMODE in (os.O_WRONLY, os.O_RDWR)
    return bool(flags & os.O_TRUNC) and not writes and not flags & os.O_PATH


def _open(flags_at: int) -> Block:
    return [
        loaded(flags_at),
        (JUMP_ANY_BIT, 0, 5, os.O_TRUNC),
        (JUMP_ANY_BIT, 4, 0, os.O_PATH),
        (AND, 0, 0, os.O_ACCMODE),
        (JUMP_EQUAL, 2, 0, os.O_WRONLY),
        (JUMP_EQUAL, 1, 0, os.O_RDWR),
        returned(_EACCES),
        ALLOWED,
    ]
