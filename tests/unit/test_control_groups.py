"""Where control groups are, by the kernel's list of mounts."""

from pathlib import Path

import pytest

from orchestrator.host.node.control_groups import (
    UNIFIED,
    Mount,
    directory_of,
    find_groups,
    group_paths,
    groups_of,
    mounts_of,
    root_of,
    this_host,
)
from tests.support.control_groups import ARRANGEMENTS, CGROUPFS, ID, SYSTEMD, ControlGroups, write


def test_this_host_has_control_groups() -> None:
    mounts = this_host().mounts
    assert UNIFIED in mounts or "memory" in mounts
    assert all(mount.point.is_dir() for mount in mounts.values())


def test_controllers_that_are_mounted_together_are_found_by_each_name(tmp_path: Path) -> None:
    mounts = ControlGroups(tmp_path, "hybrid").host.mounts
    assert mounts["cpu"] == mounts["cpuacct"] == Mount(1, "/", tmp_path / "cgroup/cpu,cpuacct")
    assert mounts["name=systemd"].point == tmp_path / "cgroup/systemd"
    assert mounts[UNIFIED] == Mount(2, "/", tmp_path / "cgroup/unified")


@pytest.mark.parametrize(
    ("arrangement", "expected"),
    [
        ("version 2", (2, 2, 2, 2)),
        ("version 1, each apart", (1, 1, 1, 1)),
        ("version 1", (1, 1, 1, 1)),
        ("hybrid", (1, 1, 1, 1)),
        ("hybrid, memory and pids in version 2", (1, 2, 2, 1)),
    ],
)
@pytest.mark.parametrize("path", [CGROUPFS, SYSTEMD])
def test_each_controller_has_its_version(
    tmp_path: Path, arrangement: str, expected: tuple[int, ...], path: str
) -> None:
    groups = ControlGroups(tmp_path, arrangement)
    groups.container(path, [1])
    found = find_groups(ID, None, groups.host)
    assert found is not None
    four = (found.cpu, found.memory, found.pids, found.freezer)
    assert tuple(each.version for each in four) == expected
    names = ("cpuacct", "memory", "pids", "freezer")
    assert [each.directory for each in four] == [groups.group(name, path) for name in names]


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_a_container_sees_the_part_of_the_hierarchies_that_it_is_in(
    tmp_path: Path, arrangement: str
) -> None:
    groups = ControlGroups(tmp_path, arrangement, seen="/docker/ours")
    groups.container(ID, [1])
    below = group_paths(groups.membership(f"/docker/ours/{ID}"))
    assert set(groups_of(ID, below, groups.host)) >= {groups.group("memory", ID)}
    beside = group_paths(groups.membership(f"/docker/{ID}"))
    assert list(groups_of(ID, beside, groups.host)) == []


def test_the_mount_with_the_most_of_a_hierarchy_counts() -> None:
    lines = (
        "40 30 0:31 /docker/x /mnt/part rw - cgroup cgroup rw,memory",
        "41 30 0:31 / /mnt/all\\040of\\040it rw - cgroup cgroup rw,memory",
        "42 30 0:31 /docker/y /mnt/other rw - cgroup cgroup rw,memory",
        "43 30 0:32 / /mnt/cgroup rw - tmpfs cgroup rw,memory",
    )
    mounts = mounts_of("\n".join(lines).encode())
    assert mounts["memory"] == Mount(1, "/", Path("/mnt/all of it"))
    assert root_of(mounts, "memory") == Path("/mnt/all of it")
    assert root_of(mounts, "blkio") is None


def test_a_path_is_below_what_is_mounted_by_whole_names() -> None:
    mount = Mount(2, "/docker/ours", Path("/mnt"))
    assert directory_of(mount, "/docker/ours/x") == Path("/mnt/x")
    assert directory_of(mount, "/docker/ours") == Path("/mnt")
    assert directory_of(mount, "/docker/ours-too/x") is None
    assert directory_of(Mount(2, "/", Path("/mnt")), "/a") == Path("/mnt/a")


def test_a_host_without_control_groups_shows_none(tmp_path: Path) -> None:
    write(tmp_path / "self/mountinfo", "31 23 0:28 / / rw - ext4 /dev/vda rw\n")
    host = this_host(tmp_path)
    assert host.mounts == {}
    assert find_groups(ID, None, host) is None


def test_paths_outside_of_the_view_are_left_out() -> None:
    text = f"2:pids:/../x\n1:cpu,cpuacct:/docker/{ID}\n0::/../../docker/{ID}\n"
    assert group_paths(text) == {"cpu": f"/docker/{ID}", "cpuacct": f"/docker/{ID}"}
