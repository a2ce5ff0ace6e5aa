"""Decisions of a filter, by an interpreter of its instructions."""

import struct

from sandbox_agent.enforce.filters.architectures import ARCHITECTURES

KILL, NOTIFY, ALLOW = "kill", "notify", "allow"


def decision(
    code: bytes, machine: str, call: str | int, *arguments: int, audit: int | None = None
) -> object:
    """The program's decision for a call, as a name or an error number."""
    architecture = ARCHITECTURES[machine]
    number = call if isinstance(call, int) else architecture.calls[call]
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", number, audit or architecture.audit, 0, *padded)
    instructions = list(struct.iter_unpack("<HBBI", code))
    position = accumulator = 0
    while True:
        operation, if_true, if_false, value = instructions[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x06:
            return _meaning(value)
        else:
            test = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[operation]
            position += if_true if test else if_false


def _meaning(action: int) -> object:
    named = {0x80000000: KILL, 0x7FC00000: NOTIFY, 0x7FFF0000: ALLOW}
    return named[action] if action in named else action & 0xFFFF
