"""Whether the host has room: a pure decision."""

import pytest

from orchestrator.ground.errors import CapacityExhaustedError
from orchestrator.host.node.base import Resources
from orchestrator.sessions.sandbox_room import admit

GIB = 1024**3


def test_a_host_with_room_admits() -> None:
    admit(31, 32, Resources(GIB, GIB), GIB, GIB)


@pytest.mark.parametrize(
    ("active", "memory", "disk", "reason"),
    [
        (32, GIB, GIB, "32 of 32 sandboxes"),
        (0, GIB - 1, GIB, "memory"),
        (0, GIB, GIB - 1, "disk"),
    ],
)
def test_what_is_short_is_named_and_a_retry_is_advised(
    active: int, memory: int, disk: int, reason: str
) -> None:
    with pytest.raises(CapacityExhaustedError, match=reason) as refused:
        admit(active, 32, Resources(memory, disk), GIB, GIB)
    assert refused.value.fields["retry_after"] > 0
