"""A container's processes are killed without its engine, and no other process is."""

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.host.node.container_kill import FirstProcess, first_process, kill_all
from orchestrator.host.node.processes import HostPaths
from tests.unit.test_processes import ID, STAT, write

Sleeper = subprocess.Popen[bytes]
# The control groups in which engines and operators put a container.
PLACES = (
    f"docker/{ID}",
    f"system.slice/docker-{ID}.scope",
    f"agents/{ID}",
    f"agents.slice/agents-low.slice/docker-{ID}.scope",
)


@pytest.fixture
def host(tmp_path: Path) -> HostPaths:
    return HostPaths(tmp_path / "proc", tmp_path / "cgroup")


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


def group(host: HostPaths, sleepers: list[Sleeper], place: str, version: int) -> FirstProcess:
    """Shows those processes as a container, as the kernel does; returns its first process."""
    if version == 2:
        text, directory = f"0::/{place}\n", host.cgroup / place
    else:
        text = f"4:memory:/{place}\n3:cpu,cpuacct:/{place}\n1:name=systemd:/{place}\n0::/\n"
        directory = host.cgroup / "memory" / place
    for inside, process in zip((1, 17), sleepers, strict=True):
        shown(host, process.pid, text, inside)
    # 0 stands for a process of a namespace that is not visible here.
    write(directory / "cgroup.procs", "".join(f"{pid}\n" for pid in (0, *pids(sleepers))))
    found = first_process(ID, sleepers[0].pid, host)
    assert found is not None
    assert found.groups == (directory,)
    return found


def pids(processes: list[Sleeper]) -> list[int]:
    return [process.pid for process in processes]


def killed(process: Sleeper) -> bool:
    return process.wait() == -signal.SIGKILL


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("place", PLACES)
def test_a_group_is_where_the_kernel_has_it(
    host: HostPaths, sleepers: list[Sleeper], place: str, version: int
) -> None:
    first = group(host, sleepers, place, version)
    assert kill_all(ID, first, host) >= 2
    assert all(killed(process) for process in sleepers)


@pytest.mark.parametrize("version", [1, 2])
def test_a_container_s_first_process_can_be_spared(
    host: HostPaths, sleepers: list[Sleeper], version: int
) -> None:
    first = group(host, sleepers, PLACES[2], version)
    assert kill_all(ID, first, host, spare_first=True) == 1
    assert killed(sleepers[1])
    assert sleepers[0].poll() is None


@pytest.mark.parametrize("name", ["\rNSpid:\t1", "\rNSpid:"])
def test_no_process_is_spared_for_its_name(
    host: HostPaths, sleepers: list[Sleeper], name: str
) -> None:
    first = group(host, sleepers, PLACES[2], 2)
    pid = sleepers[1].pid
    write(host.proc / str(pid) / "status", f"Name:\t{name}\nNSpid:\t{pid}\t17\n")
    assert kill_all(ID, first, host, spare_first=True) == 1
    assert killed(sleepers[1])
    assert sleepers[0].poll() is None


def test_groups_below_it_are_of_it(host: HostPaths, sleepers: list[Sleeper]) -> None:
    place = PLACES[2]
    first = group(host, sleepers, place, 2)
    write(host.cgroup / place / "cgroup.procs", "")
    for name, process in zip(("init", "a/b"), sleepers, strict=True):
        write(host.cgroup / place / name / "cgroup.procs", f"{process.pid}\n")
        shown(host, process.pid, f"0::/{place}/{name}\n")
    moved = first_process(ID, sleepers[0].pid, host)
    assert moved == first
    assert kill_all(ID, moved, host) >= 2
    assert all(killed(process) for process in sleepers)


def test_without_what_was_known_the_usual_places_are_looked_at(
    host: HostPaths, sleepers: list[Sleeper]
) -> None:
    place = PLACES[0]
    for controller in ("cpuacct", "memory", "pids"):
        write(host.cgroup / controller / place / "cgroup.procs", f"{sleepers[1].pid}\n")
    shown(host, sleepers[1].pid, f"8:pids:/{place}\n")
    assert kill_all(ID, None, host) == 1
    assert killed(sleepers[1])


def test_without_a_group_the_first_process_is_killed(
    host: HostPaths, sleepers: list[Sleeper]
) -> None:
    shown(host, sleepers[0].pid, "0::/../../elsewhere\n")
    first = first_process(ID, sleepers[0].pid, host)
    assert first is not None
    assert first.groups == ()
    assert kill_all(ID, first, host, spare_first=True) == 0
    assert kill_all(ID, first, host) == 1
    assert killed(sleepers[0])


def test_a_process_that_has_got_the_pid_since_is_spared(
    host: HostPaths, sleepers: list[Sleeper]
) -> None:
    first = group(host, sleepers, PLACES[0], 2)
    for process in sleepers:
        shown(host, process.pid, "0::/user.slice\n", started=1000)
    assert kill_all(ID, first, host) == 0
    assert [process.poll() for process in sleepers] == [None, None]


def test_a_container_that_is_gone_has_nothing_to_kill(
    host: HostPaths, sleepers: list[Sleeper]
) -> None:
    assert kill_all(ID, None, host) == 0
    assert first_process(ID, 4000, host) is None
    first = group(host, sleepers, PLACES[0], 1)
    for process in sleepers:
        process.kill()
        process.wait()
    assert kill_all(ID, first, host) == 0
