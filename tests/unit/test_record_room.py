"""Whether there is room for records, when the disk does not say how much is free."""

import errno

import pytest

from orchestrator.ground.errors import CapacityExhaustedError
from orchestrator.ground.limits import KeyLimits
from orchestrator.record.audit.record_room import DISK_REASON, RecordRoom
from orchestrator.rules.access.keys import KeyRing


def test_a_disk_that_fails_leaves_the_last_known_room() -> None:
    """An event whose size is counted is on record already, so the count never fails."""
    found: list[int | OSError] = [100, OSError(errno.EIO, "no")]

    def free() -> int:
        value = found.pop(0)
        if isinstance(value, OSError):
            raise value
        return value

    room = RecordRoom(KeyRing({}), KeyLimits(), 10, free, iter(range(100)).__next__)
    assert room.stops("ann") is None
    assert room.stops("ann") is None
    assert found == []


def test_a_disk_that_was_never_known_has_no_room() -> None:
    def free() -> int:
        raise OSError(errno.EIO, "no")

    room = RecordRoom(KeyRing({}), KeyLimits(), 10, free)
    assert room.stops("ann") == DISK_REASON
    with pytest.raises(CapacityExhaustedError):
        room.check("ann")
