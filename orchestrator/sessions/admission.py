"""Whether the host has room for another sandbox. The decision is pure, the facts come in."""

from dataclasses import dataclass
from pathlib import Path

import psutil

from orchestrator.errors import CapacityExhaustedError

_RETRY_SECONDS = 10


@dataclass(frozen=True, slots=True)
class HostResources:
    """What the host has left, in bytes."""

    free_memory_bytes: int
    free_disk_bytes: int


def measure(state_dir: Path) -> HostResources:
    """The host's available memory, and the free space where workspaces are kept."""
    return HostResources(psutil.virtual_memory().available, psutil.disk_usage(str(state_dir)).free)


def admit(
    active: int,
    max_active: int,
    resources: HostResources,
    min_free_memory_bytes: int,
    min_free_disk_bytes: int,
) -> None:
    """Raises: CapacityExhaustedError with `retry_after` when another sandbox is too much."""
    if active >= max_active:
        raise CapacityExhaustedError(
            f"{active} of {max_active} sandboxes are in use: close one, or raise max_active",
            retry_after=_RETRY_SECONDS,
        )
    if resources.free_memory_bytes < min_free_memory_bytes:
        raise CapacityExhaustedError(
            "the host is short of memory for another sandbox", retry_after=_RETRY_SECONDS
        )
    if resources.free_disk_bytes < min_free_disk_bytes:
        raise CapacityExhaustedError(
            "the host is short of disk space for another sandbox", retry_after=_RETRY_SECONDS
        )
