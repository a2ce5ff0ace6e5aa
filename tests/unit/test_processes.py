"""A sandbox's processes and use, read from trees as the kernel shows them."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.host.node.control_groups import HostPaths, find_groups
from orchestrator.host.node.processes import (
    Earlier,
    Measured,
    Process,
    Times,
    Usage,
    compared,
    measure,
    parse_process,
)
from tests.support.control_groups import (
    ARRANGEMENTS,
    CGROUPFS,
    ID,
    PARENTED,
    SYSTEMD,
    ControlGroups,
    write,
)

STAT = (
    b"%d (%b) S 3999 1 1 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 999 2048000 7 184 " + b"0 " * 27
)


def process_of(host: HostPaths, pid: int, inside: int, argv: bytes, name: bytes = b"sh") -> None:
    directory = host.proc / str(pid)
    write(directory / "stat", STAT % (pid, name))
    write(directory / "status", f"Name:\tsh\nNSpid:\t{pid}\t{inside}\n")
    write(directory / "cmdline", argv)


@pytest.fixture(params=ARRANGEMENTS)
def groups(request: pytest.FixtureRequest, tmp_path: Path) -> ControlGroups:
    """The control groups of a host of each arrangement, with three processes."""
    found = ControlGroups(tmp_path / "a host", request.param)
    process_of(found.host, 4001, 7, b"cat\0a b\0")
    process_of(found.host, 4000, 1, b"python3\0-I\0")
    process_of(found.host, 999, 999, b"somebody\0else\0")
    return found


@pytest.fixture
def host(groups: ControlGroups) -> HostPaths:
    """The same, with a container where the driver cgroupfs puts it."""
    groups.container(CGROUPFS, [4000, 4001])
    return groups.host


def look(host: HostPaths, pid: int | None = None) -> Measured | None:
    found = measure(ID, pid, Earlier(), host)
    return None if found is None else found[0]


def check(measured: Measured | None) -> None:
    assert measured is not None
    assert measured.frozen is True
    assert replace(measured.usage, cpu_percent=0.0) == Usage(1.5, 0.0, 8000, 3)
    agent, cat = measured.processes
    assert (agent.pid, agent.host_pid, agent.argv) == (1, 4000, ["python3", "-I"])
    assert (cat.pid, cat.host_pid, cat.argv, cat.state) == (7, 4001, ["cat", "a b"], "sleeping")
    assert (agent.host_parent_pid, cat.cpu_seconds) == (3999, 2.0)
    assert cat.memory_bytes == 7 * 4096


@pytest.mark.parametrize("path", [CGROUPFS, SYSTEMD])
def test_a_container_where_the_drivers_put_it(groups: ControlGroups, path: str) -> None:
    groups.container(path, [4000, 4001])
    check(look(groups.host))


@pytest.mark.parametrize("path", [CGROUPFS, SYSTEMD, *PARENTED])
def test_a_container_where_its_first_process_is(groups: ControlGroups, path: str) -> None:
    groups.container(path, [4000, 4001])
    write(groups.host.proc / "4000" / "cgroup", groups.membership(path))
    check(look(groups.host, 4000))
    assert (look(groups.host) is None) is (path in PARENTED)


def test_processes_in_groups_that_are_delegated_to_a_container(groups: ControlGroups) -> None:
    groups.container(PARENTED[0], [])
    for name, pid in (("init", 4000), ("a/b", 4001)):
        path = f"{PARENTED[0]}/{name}"
        write(groups.group("pids", path) / "cgroup.procs", f"{pid}\n")
        write(groups.host.proc / str(pid) / "cgroup", groups.membership(path))
    check(look(groups.host, 4000))


def test_a_pid_that_is_somebody_elses_now_shows_nothing(groups: ControlGroups) -> None:
    groups.container("/user.slice/somebody", [4000])
    write(groups.host.proc / "4000" / "cgroup", groups.membership("/user.slice/somebody"))
    assert find_groups(ID, 4000, groups.host) is None


def test_processes_that_end_meanwhile_are_left_out(groups: ControlGroups) -> None:
    groups.container(CGROUPFS, [4000, 77777, 0])
    measured = look(groups.host)
    assert measured is not None
    assert [process.host_pid for process in measured.processes] == [4000]


def test_a_process_that_the_kernel_names_twice_is_one(groups: ControlGroups) -> None:
    groups.container(CGROUPFS, [4001, 4000, 4001, 4000])
    (groups.group("pids", CGROUPFS) / "pids.current").unlink()
    measured = look(groups.host)
    assert measured is not None
    assert [process.host_pid for process in measured.processes] == [4000, 4001]
    assert measured.usage.pids == 2


def test_a_group_that_goes_away_shows_nothing(groups: ControlGroups) -> None:
    groups.container(CGROUPFS, [4000])
    (groups.group("memory", CGROUPFS) / "memory.stat").unlink()
    assert look(groups.host) is None


def test_names_and_words_may_hold_anything() -> None:
    stat = STAT % (5, b") R (\n\xff")
    process, started = parse_process(5, stat, b"NSpid:\t5\t2\n", b"a\xff\0\0b")
    assert started == 9.99
    assert process.name == ") R (\n\\xff"
    assert process.argv == ["a\\xff", "", "b"]
    assert (process.pid, process.state) == (2, "sleeping")


def test_a_name_is_not_taken_for_a_line_of_the_kernel_s(host: HostPaths) -> None:
    for status in ("\rNSpid:x\nNSpid:\t4001\t7\n", "\rNSpid:\t9\nNSpid:\t4001\t7\n"):
        write(host.proc / "4001" / "status", f"Name:\t{status}")
        check(look(host))


def test_a_process_that_can_t_be_read_hides_no_other(host: HostPaths) -> None:
    for unread in (b"", b"4001 sh S", b"4001 (sh) S"):
        write(host.proc / "4001" / "stat", unread)
        measured = look(host)
        assert measured is not None
        assert [process.host_pid for process in measured.processes] == [4000]


def test_a_zombie_has_no_words() -> None:
    assert parse_process(5, STAT % (5, b"x"), b"", b"")[0].argv == []


def process(pid: int, seconds: float) -> Process:
    return Process(pid, pid, 1, "x", [], "running", seconds, 0.0, 1)


def times(at: float, total: float, *used: tuple[int, float, float]) -> Times:
    """`used`: pid, start time and CPU seconds of each process."""
    return Times(at, total, {(pid, started): seconds for pid, started, seconds in used})


def percentages(now: Times, base: Times | None) -> list[float]:
    """The percentages of the whole sandbox and of each process."""
    processes = [process(pid, seconds) for (pid, _), seconds in now.used.items()]
    found = compared(Measured(processes, Usage(now.total, 0.0, 20, 2)), now, base)
    return [found.usage.cpu_percent, *(process.cpu_percent for process in found.processes)]


def test_percentages_are_of_the_time_since_the_earlier_look() -> None:
    base = times(100, 6.0, (1, 90, 1.0), (2, 91, 5.0))
    # The second process has the pid of one that ended; the third is new.
    now = times(110, 16.0, (1, 90, 2.0), (2, 105, 2.5), (3, 109.99, 0.01))
    assert percentages(now, base) == [100.0, 10.0, 50.0, 10.0]


def test_without_an_earlier_look_they_are_of_all_the_time() -> None:
    assert percentages(times(110, 10.0, (1, 90, 1.0), (2, 100, 9.0)), None) == [50.0, 5.0, 90.0]
    assert percentages(times(110, 0.0), None) == [0.0]


def test_looks_that_are_too_close_are_not_compared() -> None:
    first, second, third = times(10, 1), times(10.05, 1), times(20, 2)
    looks = Earlier().followed_by(first)
    assert looks.base(10.05) is None
    assert looks.followed_by(second) is looks
    looks = looks.followed_by(third)
    assert (looks.base(20.05), looks.base(20.1)) == (first, third)


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 10))
def test_percentages_are_never_negative(earlier: float, later: float, seconds: float) -> None:
    now = times(seconds, later, (1, 0.0, later))
    assert min(percentages(now, times(0, earlier, (1, 0.0, earlier)))) >= 0
