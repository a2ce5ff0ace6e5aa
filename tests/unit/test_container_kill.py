"""A container's processes are killed without its engine, and no other process is."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.host.node.container_kill import FirstProcess, first_process, kill_all
from orchestrator.host.node.control_groups import HostPaths
from tests.support.control_groups import (
    ARRANGEMENTS,
    CGROUPFS,
    ID,
    PARENTED,
    SYSTEMD,
    ControlGroups,
    write,
)
from tests.unit.test_processes import STAT

Sleeper = subprocess.Popen[bytes]
# The control groups in which engines and operators put a container.
PLACES = (CGROUPFS, SYSTEMD, *PARENTED)


@pytest.fixture(params=ARRANGEMENTS)
def groups(request: pytest.FixtureRequest, tmp_path: Path) -> ControlGroups:
    """The control groups of a host, in each arrangement."""
    return ControlGroups(tmp_path, request.param)


@pytest.fixture
def sleepers() -> Iterator[list[Sleeper]]:
    """Two processes that end only by a signal, as a container's first process and another one."""
    processes = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def shown(host: HostPaths, pid: int, cgroup: str, inside: int = 1, started: int = 999) -> None:
    """Creates the files with which the kernel shows a process."""
    directory = host.proc / str(pid)
    write(directory / "stat", STAT.replace(b" 999 ", b" %d " % started) % (pid, b"x) (y"))
    write(directory / "status", f"Name:\tsh\nNSpid:\t{pid}\t{inside}\n")
    write(directory / "cgroup", cgroup)


def contained(groups: ControlGroups, sleepers: list[Sleeper], place: str) -> FirstProcess:
    """Shows those processes as a container, as the kernel does; returns its first process."""
    for inside, process in zip((1, 17), sleepers, strict=True):
        shown(groups.host, process.pid, groups.membership(place), inside)
    # 0 stands for a process of a namespace that is not visible here.
    groups.container(place, [0, *pids(sleepers)])
    found = first_process(ID, sleepers[0].pid, groups.host)
    assert found is not None
    assert groups.group("memory", place) in found.groups
    return found


def pids(processes: list[Sleeper]) -> list[int]:
    return [process.pid for process in processes]


def killed(process: Sleeper) -> bool:
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("place", PLACES)
def test_a_group_is_where_the_kernel_has_it(
    groups: ControlGroups, sleepers: list[Sleeper], place: str
) -> None:
    first = contained(groups, sleepers, place)
    assert kill_all(ID, first, groups.host) >= 2
    assert all(killed(process) for process in sleepers)


def test_a_container_s_first_process_can_be_spared(
    groups: ControlGroups, sleepers: list[Sleeper]
) -> None:
    first = contained(groups, sleepers, PLACES[2])
    assert kill_all(ID, first, groups.host, spare_first=True) == 1
    assert killed(sleepers[1])
    assert sleepers[0].poll() is None


@pytest.mark.parametrize("name", ["\rNSpid:\t1", "\rNSpid:"])
def test_no_process_is_spared_for_its_name(
    groups: ControlGroups, sleepers: list[Sleeper], name: str
) -> None:
    first = contained(groups, sleepers, PLACES[2])
    pid = sleepers[1].pid
    write(groups.host.proc / str(pid) / "status", f"Name:\t{name}\nNSpid:\t{pid}\t17\n")
    assert kill_all(ID, first, groups.host, spare_first=True) == 1
    assert killed(sleepers[1])
    assert sleepers[0].poll() is None


def test_groups_below_it_are_of_it(groups: ControlGroups, sleepers: list[Sleeper]) -> None:
    place = PLACES[2]
    first = contained(groups, sleepers, place)
    groups.container(place, [])
    for name, process in zip(("init", "a/b"), sleepers, strict=True):
        for controller in ("cpuacct", "memory", "pids", "freezer"):
            below = groups.group(controller, f"{place}/{name}")
            write(below / "cgroup.procs", f"{process.pid}\n")
        shown(groups.host, process.pid, groups.membership(f"{place}/{name}"))
    moved = first_process(ID, sleepers[0].pid, groups.host)
    assert moved == first
    assert kill_all(ID, moved, groups.host) >= 2
    assert all(killed(process) for process in sleepers)


def test_without_what_was_known_the_usual_places_are_looked_at(
    groups: ControlGroups, sleepers: list[Sleeper]
) -> None:
    groups.container(SYSTEMD, [sleepers[1].pid])
    shown(groups.host, sleepers[1].pid, groups.membership(SYSTEMD))
    assert kill_all(ID, None, groups.host) == 1
    assert killed(sleepers[1])


def test_without_a_group_the_first_process_is_killed(
    groups: ControlGroups, sleepers: list[Sleeper]
) -> None:
    host = groups.host
    shown(host, sleepers[0].pid, "0::/../../elsewhere\n")
    first = first_process(ID, sleepers[0].pid, host)
    assert first is not None
    assert first.groups == ()
    assert kill_all(ID, first, host, spare_first=True) == 0
    assert kill_all(ID, first, host) == 1
    assert killed(sleepers[0])


def test_a_process_that_has_got_the_pid_since_is_spared(
    groups: ControlGroups, sleepers: list[Sleeper]
) -> None:
    first = contained(groups, sleepers, PLACES[0])
    for process in sleepers:
        shown(groups.host, process.pid, groups.membership("/user.slice"), started=1000)
    assert kill_all(ID, first, groups.host) == 0
    assert [process.poll() for process in sleepers] == [None, None]


def test_a_container_that_is_gone_has_nothing_to_kill(
    groups: ControlGroups, sleepers: list[Sleeper]
) -> None:
    host = groups.host
    assert kill_all(ID, None, host) == 0
    assert first_process(ID, 4000, host) is None
    first = contained(groups, sleepers, PLACES[0])
    for process in sleepers:
        process.kill()
        process.wait()
    assert kill_all(ID, first, host) == 0
