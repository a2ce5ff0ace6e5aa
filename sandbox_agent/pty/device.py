"""The pseudo-terminal device. All descriptors but the slave stay in the agent.

The slave belongs to root, so no process of the session can open it by its path. A tool has its
terminal only because it inherits the descriptors.
"""

import fcntl
import os
import signal
import struct
import termios
from contextlib import suppress

# The longest line with its end: the kernel cuts longer ones while it does the line editing.
MOST_COOKED_BYTES = 4095
_OUTPUT_FLAGS, _LOCAL_FLAGS = 1, 3
_ECHO = termios.ECHO | termios.ECHOE | termios.ECHOK | termios.ECHOCTL | termios.ECHOKE
_TIOCGSID = 0x5429
_TIOCSIG = 0x40045436
_TIOCGPTPEER = 0x5441
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


def make_plain(terminal: int) -> None:
    """Has the terminal show what programs print, unchanged, and nothing else; lines are edited."""
    with suppress(termios.error):  # no process has the other end open any more
        settings = termios.tcgetattr(terminal)
        settings[_OUTPUT_FLAGS] &= ~termios.OPOST
        settings[_LOCAL_FLAGS] &= ~_ECHO
        settings[_LOCAL_FLAGS] |= termios.ICANON | termios.ISIG
        termios.tcsetattr(terminal, termios.TCSANOW, settings)


def drop_input(master: int) -> None:
    """Drops what was written to the terminal and no process has read."""
    with suppress(OSError, termios.error):
        slave = fcntl.ioctl(master, _TIOCGPTPEER, os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
        try:
            termios.tcflush(slave, termios.TCIFLUSH)
        finally:
            os.close(slave)


def interrupt(master: int) -> None:
    """Sends SIGINT to the foreground processes, as the kernel does for Ctrl-C. Raises: OSError."""
    fcntl.ioctl(master, _TIOCSIG, signal.SIGINT)


def session_leader(master: int) -> int:
    """The session leader of the terminal: the tool that was started. Raises: OSError."""
    found = fcntl.ioctl(master, _TIOCGSID, bytes(_PID.size))
    return int(_PID.unpack(found)[0])
