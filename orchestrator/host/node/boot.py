"""Which start of the machine this is."""

import time
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """A random text that the kernel makes at each start. Raises: OSError."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def boottime() -> float:
    """Seconds since the machine has started, its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
