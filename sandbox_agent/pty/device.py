"""The pseudo-terminal device. All descriptors but the slave stay in the agent.

The slave belongs to root, so no process of the session can open it by its path. A tool has its
terminal only because it inherits the descriptors.
"""

import fcntl
import os
import struct
import termios

# The longest line with its end: the kernel cuts longer ones while it does the line editing.
MOST_COOKED_BYTES = 4095
_LOCAL_FLAGS = 3
_TIOCGSID = 0x5429
_PID = struct.Struct("=i")


def open_pair(rows: int, columns: int) -> tuple[int, int]:
    """Opens the master and slave of a new terminal of that size. Raises: OSError."""
    master, slave = os.openpty()
    resize(slave, rows, columns)
    os.set_blocking(master, False)
    return master, slave


def resize(terminal: int, rows: int, columns: int) -> None:
    """Sets the size; the processes in the foreground get SIGWINCH if it differs."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def cooked(master: int) -> bool:
    """Whether the kernel, rather than the program, currently does the line editing."""
    try:
        return bool(termios.tcgetattr(master)[_LOCAL_FLAGS] & termios.ICANON)
    except termios.error:
        return True  # no process has the other end open any more


def session_leader(master: int) -> int:
    """The session leader of the terminal: the tool that was started. Raises: OSError."""
    found = fcntl.ioctl(master, _TIOCGSID, bytes(_PID.size))
    return int(_PID.unpack(found)[0])
