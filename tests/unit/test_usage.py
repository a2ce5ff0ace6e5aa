"""What sessions and the host use: samples at a distance, kept for ten minutes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.host.node.base import Gauged, Load
from orchestrator.host.node.processes import Usage
from orchestrator.host.node.resources import gauge
from orchestrator.host.workspace.quota import DiskUsage
from orchestrator.operate.observe.usage import SAMPLES, HostSample, Sample, UsageHistory, of_host
from tests.support.control_groups import CGROUPFS, ID, ControlGroups
from tests.support.fake_node import GIB, FakeNode

DISK = DiskUsage(10, 100)


class Disks:
    """Workspaces that count how often they are looked at."""

    def __init__(self) -> None:
        self.looks = 0

    async def usage(self, _workspace: object) -> DiskUsage:
        self.looks += 1
        return DISK


def session(key: str, container: str | None = "c") -> Any:
    box = None if container is None else SimpleNamespace(container_id=container, first=None)
    return SimpleNamespace(key=key, sandbox=box, workspace=None)


def history(node: FakeNode, live: list[Any], disks: Disks | None = None) -> UsageHistory:
    workspaces: Any = disks or Disks()
    return UsageHistory(node, workspaces, lambda: live)


async def test_percentages_are_of_the_time_between_two_samples() -> None:
    node, one, suspended = FakeNode(), session("one"), session("none", None)
    found = history(node, [one, suspended])
    for used in (5.0, 6.0, 16.0):
        node.uses = {"c": Usage(used, 0.0, int(used) * 100, 3)}
        await found.sample()
    assert list(found.of(one).samples) == [
        Sample(0.0, 500, 3),
        Sample(10.0, 600, 3),
        Sample(100.0, 1600, 3),
    ]
    assert list(found.of(suspended).samples) == [None] * 3
    assert (found.of(one).disk, found.round) == (DISK, 3)
    assert list(found.of(session("new")).samples) == []


async def test_a_sandbox_that_was_replaced_begins_anew() -> None:
    node, one = FakeNode(), session("one")
    found = history(node, [one])
    node.uses = {"c": Usage(100.0, 0.0, 1, 1)}
    await found.sample()
    one.sandbox.container_id = "d"
    node.uses = {"d": Usage(7.0, 0.0, 1, 1)}
    await found.sample()
    assert [sample and sample.cpu_percent for sample in found.of(one).samples] == [0.0, 0.0]


async def test_no_more_is_kept_than_is_shown_and_ended_sessions_are_forgotten() -> None:
    node, one, disks = FakeNode(), session("one"), Disks()
    live = [one]
    found = history(node, live, disks)
    for _ in range(SAMPLES + 30):
        await found.sample()
    assert (len(found.of(one).samples), len(found.host)) == (SAMPLES, SAMPLES)
    assert disks.looks == (SAMPLES + 30) / 3
    live.clear()
    await found.sample()
    assert list(found.of(one).samples) == []


async def test_a_host_that_does_not_answer_fails_the_round_and_is_asked_again() -> None:
    node = FakeNode()
    found = history(node, [session("one")])
    node.hangs = True
    with pytest.raises(TimeoutError):
        await found.sample()
    node.hangs = False
    await found.sample()
    assert found.round == 1


def test_the_hosts_percentage_leaves_out_what_is_idle() -> None:
    def at(user: float, idle: float, wait: float) -> Gauged:
        times: Mapping[str, float] = {"user": user, "idle": idle, "iowait": wait}
        return Gauged(0.0, Load(times, 2, 4 * GIB, GIB, 8 * GIB, 2 * GIB), {})

    first = of_host(at(1, 1, 1), None)
    assert first == HostSample(33.3, 3 * GIB, 6 * GIB)
    assert of_host(at(4, 6, 2), at(1, 1, 1)).cpu_percent == 33.3


async def test_a_container_that_is_gone_hides_no_other(tmp_path: Path) -> None:
    groups = ControlGroups(tmp_path, "version 2")
    groups.container(CGROUPFS, [1])
    found = await asyncio.to_thread(gauge, {ID: None, "gone": 7}, tmp_path, groups.host)
    assert found.usages == {ID: Usage(1.5, 0.0, 8000, 3)}
