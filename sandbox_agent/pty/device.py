"""The pseudo-terminal device itself. What is opened here stays in the agent, but for the slave.

The slave belongs to root, so no process of the session can open it by its path: a tool has
its own terminal by inheritance only.
"""

import fcntl
import os
import struct
import termios

# With its end. The kernel cuts longer lines where it does the line editing.
MOST_COOKED_BYTES = 4095
_LOCAL_FLAGS = 3


def open_pair(rows: int, columns: int) -> tuple[int, int]:
    """Master and slave of a new terminal of that size. Raises: OSError."""
    master, slave = os.openpty()
    size = struct.pack("HHHH", rows, columns, 0, 0)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, size)
    os.set_blocking(master, False)
    return master, slave


def cooked(master: int) -> bool:
    """Whether the kernel edits lines now, rather than the program."""
    try:
        return bool(termios.tcgetattr(master)[_LOCAL_FLAGS] & termios.ICANON)
    except termios.error:
        return True  # nobody has the other end open any more


def foreground_rests(master: int) -> bool:
    """Whether the foreground program is doing nothing: asleep, as one is that waits for input.

    One that is on a CPU, or wants to be, has not said everything yet.
    """
    try:
        leader = os.tcgetpgrp(master)
        with open(f"/proc/{leader}/stat", "rb") as file:
            state = file.read().rpartition(b")")[2].split(maxsplit=1)[0]
    except (OSError, IndexError):
        return True  # it has ended
    return state != b"R"
