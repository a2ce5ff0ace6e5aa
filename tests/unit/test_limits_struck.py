"""Which limit a sandbox hit, according to the kernel's counters."""

import os
from pathlib import Path
from typing import Any

import pytest

from sandbox_agent.core import limits
from sandbox_agent.core.limits import Counters

BEFORE = Counters(killed=3, refused=5, peak=40)
MOST = 66


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n", 2),
        (b"oom_kill_disable 0\nunder_oom 0\noom_kill 41\n", 41),
        (b"oom_kill_disable 1\nunder_oom 0\n", 0),
        (b"oom_kill many\n", 0),
        (b"", 0),
    ],
)
def test_both_versions_of_control_groups(text: bytes, count: int) -> None:
    assert limits.member(text, b"oom_kill") == count


@pytest.mark.parametrize(("text", "count"), [(b"41\n", 41), (b"max\n", 0), (b"", 0), (b"-1", 0)])
def test_a_file_with_one_number(text: bytes, count: int) -> None:
    assert limits.number(text) == count


def test_the_first_counter_that_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "memory.oom_control"
    monkeypatch.setattr(limits, "_MEMORY", ("/absent/memory.events", str(path)))
    monkeypatch.setattr(limits, "_REFUSED", ("/absent/pids.events",))
    path.write_text("oom_kill 0\n")
    meter = limits.Meter()
    assert meter.counters().killed == 0
    path.write_text("oom_kill 7\n")
    assert meter.counters()[:2] == (7, 0)


@pytest.mark.parametrize(
    ("after", "now", "full", "reason"),
    [
        ({}, 10, False, None),
        ({"killed": 4}, 10, False, "oom"),
        ({"killed": 4, "refused": 6}, 70, True, "oom"),
        ({"refused": 6}, 10, False, "pids"),
        ({"peak": MOST}, 10, True, "pids"),
        ({"peak": MOST - 1}, 10, False, None),
        ({}, MOST - 1, False, "pids"),
        ({}, MOST - 2, False, None),
        ({}, 10, True, "disk"),
    ],
)
def test_what_struck(after: dict[str, int], now: int, full: bool, reason: str | None) -> None:
    assert limits.struck(BEFORE, BEFORE._replace(**after), now, MOST, full=full) == reason


def test_what_was_reached_before_did_not_strike_again() -> None:
    reached = BEFORE._replace(peak=MOST)
    assert limits.struck(reached, reached._replace(peak=MOST + 1), 10, MOST, full=False) is None


@pytest.mark.parametrize(
    ("members", "full"),
    [
        ({"f_bavail": 100}, False),
        ({"f_bavail": 15}, True),
        ({"f_favail": 0}, True),
        ({"f_favail": 0, "f_files": 0}, False),
    ],
)
def test_a_file_system_without_room(
    monkeypatch: pytest.MonkeyPatch, members: dict[str, Any], full: bool
) -> None:
    """The blocks have 4 KiB."""
    values = {"f_bavail": 100, "f_frsize": 4096, "f_files": 1000, "f_favail": 1, **members}
    monkeypatch.setattr(os, "statvfs", lambda _: type("Status", (), values)())
    assert limits.is_full("/workspace") is full


def test_a_directory_that_is_not_there_is_not_full() -> None:
    assert not limits.is_full("/absent")
