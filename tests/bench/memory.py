"""Resident memory of a process, including its peak during an operation."""

from pathlib import Path
from typing import NamedTuple


class Resident(NamedTuple):
    """Bytes in memory now, and their maximum since `reset_peak`."""

    now: int
    peak: int


def reset_peak(pid: int) -> None:
    """Resets the process's peak."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def resident(pid: int) -> Resident:
    """The kernel's figures for the process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in lines)
    return Resident(*(int(values[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM")))
