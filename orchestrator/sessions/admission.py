"""Whether the host has room for another sandbox. Decisions are pure; the facts are arguments."""

from orchestrator.ground.errors import CapacityExhaustedError
from orchestrator.host.node.base import Resources

_RETRY_SECONDS = 10


def silent() -> CapacityExhaustedError:
    """The error for a host whose free resources can't be determined in time."""
    return CapacityExhaustedError(
        "the host's disk does not answer in time", retry_after=_RETRY_SECONDS
    )


def admit(
    active: int,
    max_active: int,
    resources: Resources,
    min_free_memory_bytes: int,
    min_free_disk_bytes: int,
) -> None:
    """Raises CapacityExhaustedError with `retry_after` if there is no room for another sandbox."""
    if active >= max_active:
        raise CapacityExhaustedError(
            f"{active} of {max_active} sandboxes are in use, and none of their sessions can be "
            "suspended: close one, or raise max_active",
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
