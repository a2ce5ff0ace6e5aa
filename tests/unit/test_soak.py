"""The soak's verdict."""

from typing import Any

import pytest

from tests.soak.footprint import Footprint, grown

START = Footprint(100, 40, 10, 2, 4, 1, 3, 10, 5)


def test_the_record_may_grow_and_anything_may_shrink() -> None:
    assert grown(START, START._replace(record_mb=500, memory_mb=50, containers=0)) == []


def test_memory_descriptors_threads_and_disk_have_slack() -> None:
    assert grown(START, START._replace(memory_mb=120, descriptors=50, threads=17, disk_mb=70)) == []


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("memory_mb", 125),
        ("descriptors", 53),
        ("threads", 19),
        ("containers", 3),
        ("mounts", 5),
        ("loop_devices", 2),
        ("directories", 4),
        ("disk_mb", 75),
    ],
)
def test_more_than_that_is_a_complaint(name: str, end: Any) -> None:
    [complaint] = grown(START, START._replace(**{name: end}))
    assert complaint.startswith(f"{name}: ")
