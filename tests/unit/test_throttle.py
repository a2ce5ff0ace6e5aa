"""Rates of a block device, set in the files of control groups."""

import os
from pathlib import Path

import pytest

from orchestrator.host.node.control_groups import Mounts
from orchestrator.host.node.throttle import can_throttle, device_of, held, node_of, root_group
from tests.support.control_groups import ControlGroups


def rates(groups: ControlGroups, read: str = "", write: str = "") -> Mounts:
    """The mounts, with a root group of block devices of version 1 that has these rates."""
    group = groups.group("blkio", "/")
    group.mkdir(parents=True)
    (group / "blkio.throttle.read_bps_device").write_text(read)
    (group / "blkio.throttle.write_bps_device").write_text(write)
    return groups.host.mounts


@pytest.mark.parametrize("arrangement", ["version 1", "version 1, each apart", "hybrid"])
def test_version_1_has_rates_in_its_root_group(tmp_path: Path, arrangement: str) -> None:
    groups = ControlGroups(tmp_path, arrangement)
    assert not can_throttle(groups.host.mounts)
    assert root_group(groups.host.mounts) is None
    mounts = rates(groups)
    assert can_throttle(mounts)
    assert root_group(mounts) == groups.group("blkio", "/")


def test_a_part_of_a_hierarchy_has_no_root_group(tmp_path: Path) -> None:
    mounts = rates(ControlGroups(tmp_path, "version 1", seen="/docker/ours"))
    assert root_group(mounts) is None
    assert not can_throttle(mounts)


@pytest.mark.parametrize("arrangement", ["version 2", "hybrid, memory and pids in version 2"])
def test_version_2_has_rates_where_its_groups_do(tmp_path: Path, arrangement: str) -> None:
    groups = ControlGroups(tmp_path, arrangement)
    mounts = groups.host.mounts
    top = groups.group("memory", "/")
    top.mkdir(parents=True)
    assert not can_throttle(mounts)
    for controllers, enabled, expected in (
        ("cpu memory pids", "", False),
        # Nothing shows yet whether this kernel limits rates.
        ("cpu io memory pids", "memory pids", True),
        # It counts only.
        ("cpu io memory pids", "io memory pids", False),
    ):
        (top / "cgroup.controllers").write_text(f"{controllers}\n")
        (top / "cgroup.subtree_control").write_text(f"{enabled}\n")
        assert can_throttle(mounts) is expected, controllers
    (top / "system.slice").mkdir()
    (top / "system.slice" / "io.max").write_text("")
    assert can_throttle(mounts)
    assert root_group(mounts) is None
    assert not held("7:0", mounts)


def test_a_rate_that_is_held(tmp_path: Path) -> None:
    groups = ControlGroups(tmp_path, "hybrid")
    mounts = rates(groups, read="7:1 1048576\n", write="7:12 1048576\n8:0 5\n")
    found = [device for device in ("7:1", "7:12", "7:2", "7:0") if held(device, mounts)]
    assert found == ["7:1", "7:12"]


def test_a_devices_names(tmp_path: Path) -> None:
    number = os.stat(tmp_path).st_dev
    assert device_of(tmp_path) == f"{os.major(number)}:{os.minor(number)}"
    (tmp_path / "7:9").symlink_to("../../devices/virtual/block/loop9")
    assert node_of("7:9", tmp_path) == "/dev/loop9"
    with pytest.raises(OSError, match="0:45"):
        node_of("0:45", tmp_path)
