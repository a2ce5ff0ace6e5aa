"""Programs of classic BPF over system calls, as instructions. Pure."""

import struct

from sandbox_agent.enforce.filters.architectures import Architecture

KILL_PROCESS = 0x80000000
USER_NOTIF = 0x7FC00000
ALLOW = 0x7FFF0000
_ERRNO = 0x00050000

LOAD = 0x20
JUMP_EQUAL = 0x15
JUMP_NOT_LESS = 0x35
JUMP_ANY_BIT = 0x45
AND = 0x54
_RETURN = 0x06
INSTRUCTION = struct.Struct("<HBBI")
# Offsets in the kernel's `struct seccomp_data`.
_NUMBER_AT = 0
_ARCHITECTURE_AT = 4
_ARGUMENTS_AT = 16

Block = list[tuple[int, int, int, int]]


def refused(number: int) -> int:
    """The action that makes a call fail with that error number."""
    return _ERRNO | number


def program(architecture: Architecture, blocks: list[tuple[str, Block]]) -> bytes:
    """Allows every call of the architecture's own ABI, except what the blocks decide, by name.

    Every block ends in returns. A call that the architecture does not have is skipped.
    """
    code: Block = [
        (LOAD, 0, 0, _ARCHITECTURE_AT),
        (JUMP_EQUAL, 1, 0, architecture.audit),
        returned(KILL_PROCESS),
        (LOAD, 0, 0, _NUMBER_AT),
    ]
    if architecture.x32 is not None:
        code += [(JUMP_NOT_LESS, 0, 1, architecture.x32), returned(KILL_PROCESS)]
    for name, block in blocks:
        number = architecture.calls.get(name)
        if number is not None:
            code += [(JUMP_EQUAL, 0, len(block), number), *block]
    code.append(ALLOWED)
    return b"".join(INSTRUCTION.pack(*instruction) for instruction in code)


def loaded(argument: int, high: bool = False) -> tuple[int, int, int, int]:
    """Loads one half of an argument: the low one, which is all that the kernel uses of an int."""
    return LOAD, 0, 0, _ARGUMENTS_AT + 8 * argument + (4 if high else 0)


def returned(action: int) -> tuple[int, int, int, int]:
    """Ends the program with that action."""
    return _RETURN, 0, 0, action


ALLOWED = returned(ALLOW)


def unless_marked(first: int, cookie: tuple[int, int]) -> Block:
    """Reports the call unless its argument `first` and the next one are these two numbers."""
    low, high = cookie
    return [
        loaded(first),
        (JUMP_EQUAL, 0, 3, low),
        loaded(first + 1),
        (JUMP_EQUAL, 0, 1, high),
        ALLOWED,
        returned(USER_NOTIF),
    ]
