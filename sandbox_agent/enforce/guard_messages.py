"""The messages between the agent and a guard. Pure.

They use two SOCK_SEQPACKET pairs. No message contains words of a command, so each one is short
whatever the command is. `N` numbers the guard's commands. The second pair is for what starts one:

    agent → guard   pN         the plan, with descriptors: the three pipes and the document
    agent → process gN         go: execute it

    agent → guard   s<number> N  signal the command's process group
                    t N        TERM to the whole tree
                    k N        KILL the whole tree, and report
    agent → guard   c          confine yourself, with descriptors: the settings and the ruleset;
                               only to a guard that was forked before there was a session
    guard → agent   L          with a descriptor on which the kernel reports executions
                    X<step> <errno>  the command could not be started: the step and the reason
                    D<index>   not started: the operand at that index leads out of the workspace
                    E<numbers> the first process ended: wait status, CPU time in microseconds,
                               peak memory in bytes, 1 if other processes of its tree are left,
                               and 1 if it failed while the workspace or /tmp was full
                    O<number>  after killing for that many milliseconds, others still appear
                    G<number>  nothing is left; that many processes outlived the first
"""

import enum
import re
from typing import NamedTuple

# Every message is shorter than this.
MOST_BYTES = 256
LISTENER = b"L"
SETUP = b"c"
TERM, KILL = b"t", b"k"
_PLAN, _GO = b"p", b"g"
_LARGEST_ERRNO = 4095
_ORDER = re.compile(rb"([tk]|s([0-9]{1,3})) ([0-9]{1,18})")
_REPORT = re.compile(rb"([XDEOG])([0-9]{1,18}(?: [0-9]{1,18}){0,4})")


class Step(enum.IntEnum):
    """The step at which a command could not be started."""

    START = 0
    PATHS = 1
    DIRECTORY = 2
    PROGRAM = 3
    CONTENT = 4
    OUTPUT = 5


class Order(NamedTuple):
    """An order for the command `number`; `signal` is None unless the order signals its group."""

    kind: bytes
    signal: int | None
    number: int


class Failed(NamedTuple):
    """The command could not be started."""

    step: Step
    errno: int


class Denied(NamedTuple):
    """The command was not started: the operand at that index leads out of the workspace."""

    operand: int


class Ended(NamedTuple):
    """How the first process ended, what it used, and whether other processes are left.

    `full`: it failed, and the workspace or /tmp has no room.
    """

    status: int
    cpu_us: int
    max_rss_bytes: int
    left: bool
    full: bool


class Outrun(NamedTuple):
    """Other processes still appear after that time of killing; the guard only waits now."""

    milliseconds: int


class Gone(NamedTuple):
    """Nothing is left; that many processes outlived the first one."""

    outlived: int


Report = Failed | Denied | Ended | Outrun | Gone


def plan(number: int) -> bytes:
    """The message that carries a plan's descriptors."""
    return b"%s%d" % (_PLAN, number)


def go(number: int) -> bytes:
    """The message that lets the command with that number execute its program."""
    return b"%s%d" % (_GO, number)


def signal_order(signal: int) -> bytes:
    """The kind of order that sends a signal to the command's group."""
    return b"s%d" % signal


def order(kind: bytes, number: int) -> bytes:
    """An order for the command with that number."""
    return b"%s %d" % (kind, number)


def parse_order(message: bytes) -> Order | None:
    """Parses an order; None if the message is not one."""
    found = _ORDER.fullmatch(message)
    if found is None:
        return None
    kind, signal, number = found.groups()
    return Order(kind[:1], None if signal is None else int(signal), int(number))


def report(said: Report) -> bytes:
    """Encodes a report."""
    kind = {Failed: b"X", Denied: b"D", Ended: b"E", Outrun: b"O", Gone: b"G"}[type(said)]
    return kind + b" ".join(b"%d" % value for value in said)


def parse_report(message: bytes) -> Report:
    """Parses a guard's report. Raises: ValueError if it is malformed."""
    found = _REPORT.fullmatch(message)
    if found is None:
        raise ValueError("not a report")
    kind, numbers = found[1], [int(number) for number in found[2].split()]
    if kind == b"X" and len(numbers) == 2 and 0 < numbers[1] <= _LARGEST_ERRNO:
        return Failed(Step(numbers[0]), numbers[1])
    if kind == b"E" and len(numbers) == 5 and numbers[0] <= 0xFFFF:
        status, cpu_us, max_rss_bytes, left, full = numbers
        return Ended(status, cpu_us, max_rss_bytes, bool(left), bool(full))
    single: dict[bytes, type[Denied | Outrun | Gone]] = {b"D": Denied, b"O": Outrun, b"G": Gone}
    if kind in single and len(numbers) == 1:
        return single[kind](numbers[0])
    raise ValueError("not a report")
