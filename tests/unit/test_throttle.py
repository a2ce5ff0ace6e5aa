"""Rates of a block device, set in the files of control groups."""

import os
from pathlib import Path

import pytest

from orchestrator.host.node.throttle import can_throttle, device_of, held, node_of, root_group


def first(directory: Path, read: str = "", write: str = "") -> Path:
    """Creates control groups of version 1."""
    group = directory / "blkio"
    group.mkdir()
    (group / "blkio.throttle.read_bps_device").write_text(read)
    (group / "blkio.throttle.write_bps_device").write_text(write)
    return directory


def test_version_1_has_rates_in_its_root_group(tmp_path: Path) -> None:
    assert not can_throttle(tmp_path)
    assert root_group(tmp_path) is None
    first(tmp_path)
    assert can_throttle(tmp_path)
    assert root_group(tmp_path) == tmp_path / "blkio"


def test_version_2_has_rates_where_its_groups_do(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    assert not can_throttle(tmp_path)
    (tmp_path / "cgroup.controllers").write_text("cpu io memory pids\n")
    # The kernel may count rates without being able to limit them.
    assert not can_throttle(tmp_path)
    (tmp_path / "system.slice").mkdir()
    (tmp_path / "system.slice" / "io.max").write_text("")
    assert can_throttle(tmp_path)
    assert root_group(tmp_path) is None
    assert not held("7:0", tmp_path)


def test_a_rate_that_is_held(tmp_path: Path) -> None:
    first(tmp_path, read="7:1 1048576\n", write="7:12 1048576\n8:0 5\n")
    found = [device for device in ("7:1", "7:12", "7:2", "7:0") if held(device, tmp_path)]
    assert found == ["7:1", "7:12"]


def test_a_devices_names(tmp_path: Path) -> None:
    number = os.stat(tmp_path).st_dev
    assert device_of(tmp_path) == f"{os.major(number)}:{os.minor(number)}"
    (tmp_path / "7:9").symlink_to("../../devices/virtual/block/loop9")
    assert node_of("7:9", tmp_path) == "/dev/loop9"
    with pytest.raises(OSError, match="0:45"):
        node_of("0:45", tmp_path)
