"""A sandbox's processes and use, read from trees as the kernel shows them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.sessions.processes import (
    Host,
    Measured,
    Process,
    Usage,
    compared,
    find_groups,
    group_paths,
    measure,
    parse_process,
)

ID = "c" * 64
STAT = b"%d (%b) S 1 1 1 0 -1 4194560 100 0 0 0 150 50 0 0 20 0 1 0 999 2048000 7 184 " + b"0 " * 27


def write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


def process_of(host: Host, pid: int, inside: int, argv: bytes, name: bytes = b"sh") -> None:
    directory = host.proc / str(pid)
    write(directory / "stat", STAT % (pid, name))
    write(directory / "status", f"Name:\tsh\nNSpid:\t{pid}\t{inside}\n")
    write(directory / "cmdline", argv)


@pytest.fixture
def host(tmp_path: Path) -> Host:
    host = Host(tmp_path / "proc", tmp_path / "cgroup")
    process_of(host, 4001, 7, b"cat\0a b\0")
    process_of(host, 4000, 1, b"python3\0-I\0")
    process_of(host, 999, 999, b"somebody\0else\0")
    return host


def version_2(host: Host, path: str) -> Path:
    write(host.cgroup / "cgroup.controllers", "cpu memory pids\n")
    group = host.cgroup / path
    write(group / "cgroup.procs", "4000\n4001\n")
    write(group / "cpu.stat", "usage_usec 1500000\nuser_usec 1000000\nsystem_usec 500000\n")
    write(group / "memory.current", "9000\n")
    write(group / "memory.stat", "anon 5000\ninactive_file 1000\n")
    write(group / "pids.current", "3\n")
    return group


def version_1(host: Host, path: str) -> None:
    for controller in ("cpuacct", "memory", "pids"):
        write(host.cgroup / controller / path / "cgroup.procs", "4001\n4000\n")
    write(host.cgroup / "cpuacct" / path / "cpuacct.usage", "1500000000\n")
    write(host.cgroup / "memory" / path / "memory.usage_in_bytes", "9000\n")
    write(host.cgroup / "memory" / path / "memory.stat", "cache 1\ntotal_inactive_file 1000\n")
    write(host.cgroup / "pids" / path / "pids.current", "3\n")


def check(measured: Measured | None) -> None:
    assert measured is not None
    assert measured.usage == Usage(1.5, 0.0, 8000, 3)
    agent, cat = measured.processes
    assert (agent.pid, agent.host_pid, agent.argv) == (1, 4000, ["python3", "-I"])
    assert (cat.pid, cat.host_pid, cat.argv, cat.state) == (7, 4001, ["cat", "a b"], "sleeping")
    assert cat.cpu_seconds == 2.0
    assert cat.memory_bytes == 7 * 4096


@pytest.mark.parametrize("path", [f"docker/{ID}", f"system.slice/docker-{ID}.scope"])
def test_version_2_where_engines_put_it(host: Host, path: str) -> None:
    version_2(host, path)
    check(measure(ID, None, host, window=0))


@pytest.mark.parametrize("path", [f"docker/{ID}", f"system.slice/docker-{ID}.scope"])
def test_version_1_where_engines_put_it(host: Host, path: str) -> None:
    version_1(host, path)
    check(measure(ID, None, host, window=0))


def test_where_the_first_process_is(host: Host) -> None:
    version_2(host, f"our.slice/docker-{ID}.scope")
    write(host.proc / "4000" / "cgroup", f"0::/our.slice/docker-{ID}.scope\n")
    check(measure(ID, 4000, host, window=0))
    assert measure(ID, None, host, window=0) is None


def test_version_1_where_the_first_process_is(host: Host) -> None:
    version_1(host, f"ours/{ID}")
    lines = [f"3:{c}:/ours/{ID}" for c in ("pids", "memory", "cpu,cpuacct")]
    write(host.proc / "4000" / "cgroup", "\n".join([*lines, f"0::/ours/{ID}"]))
    check(measure(ID, 4000, host, window=0))


def test_a_pid_that_is_somebody_elses_now_shows_nothing(host: Host) -> None:
    version_2(host, "user.slice/somebody")
    write(host.proc / "4000" / "cgroup", "0::/user.slice/somebody\n")
    assert find_groups(ID, 4000, host) is None


def test_paths_outside_of_the_view_are_left_out() -> None:
    text = f"2:pids:/../x\n1:cpu,cpuacct:/docker/{ID}\n0::/../../docker/{ID}\n"
    assert group_paths(text) == {"cpu": f"/docker/{ID}", "cpuacct": f"/docker/{ID}"}


def test_processes_that_end_meanwhile_are_left_out(host: Host) -> None:
    group = version_2(host, f"docker/{ID}")
    write(group / "cgroup.procs", "4000\n77777\n0\n")
    measured = measure(ID, None, host, window=0)
    assert measured is not None
    assert [process.host_pid for process in measured.processes] == [4000]


def test_a_group_that_goes_away_shows_nothing(host: Host) -> None:
    (version_2(host, f"docker/{ID}") / "memory.current").unlink()
    assert measure(ID, None, host, window=0) is None


def test_names_and_words_may_hold_anything() -> None:
    stat = STAT % (5, b") R (\n\xff")
    process = parse_process(5, stat, b"NSpid:\t5\t2\n", b"a\xff\0\0b")
    assert process.name == ") R (\n\\xff"
    assert process.argv == ["a\\xff", "", "b"]
    assert (process.pid, process.state) == (2, "sleeping")


def test_a_zombie_has_no_words() -> None:
    assert parse_process(5, STAT % (5, b"x"), b"", b"").argv == []


def process(pid: int, seconds: float) -> Process:
    return Process(pid, pid, "x", [], "running", seconds, 0.0, 1)


def test_percentages_are_of_the_time_between() -> None:
    before = Measured([process(1, 1.0), process(2, 5.0)], Usage(6.0, 0.0, 10, 2))
    after = Measured([process(1, 1.1), process(3, 0.05)], Usage(6.2, 0.0, 20, 2))
    found = compared(before, after, 0.1)
    assert [p.cpu_percent for p in found.processes] == [100.0, 50.0]
    assert found.usage == Usage(6.2, 200.0, 20, 2)


@given(st.floats(0, 1e9), st.floats(0, 1e9), st.floats(0, 10))
def test_percentages_are_never_negative(earlier: float, later: float, seconds: float) -> None:
    found = compared(
        Measured([], Usage(earlier, 0.0, 0, 0)), Measured([], Usage(later, 0.0, 0, 0)), seconds
    )
    assert found.usage.cpu_percent >= 0
