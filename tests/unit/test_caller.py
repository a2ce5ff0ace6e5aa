"""Paths as another process sees them: its directory, its descriptors, its /proc/self."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_agent.enforce import caller, resolve
from sandbox_agent.enforce.caller import UNKNOWN, Program

PROGRAM = os.path.realpath("/bin/true")
OWN = os.path.realpath(sys.executable)


@pytest.fixture
def there(tmp_path: Path) -> Iterator[int]:
    """A process with its own working directory, and `true` open as descriptor 9."""
    (tmp_path / "mine").symlink_to(PROGRAM)
    (tmp_path / "oneself").symlink_to("/proc/self/exe")
    (tmp_path / "nine").symlink_to("/dev/fd/9")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "sub").mkdir()
    script = tmp_path / "script"
    script.write_text("#! ./other -x\n")
    script.chmod(0o755)
    (tmp_path / "other").write_text("#!/bin/true\n")
    source = f"import os, sys; os.dup2(os.open({PROGRAM!r}, 0), 9); print(flush=True); input()"
    with subprocess.Popen(
        [OWN, "-c", source], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("/bin/true", PROGRAM),
        ("//bin/./true", PROGRAM),
        ("mine", PROGRAM),
        ("sub/../mine", PROGRAM),
        ("/dev/fd/9", PROGRAM),
        ("nine", PROGRAM),
        ("/proc/self/fd/9", PROGRAM),
        ("//proc/self/fd/9", PROGRAM),
        ("/proc/./self/fd/9", PROGRAM),
        ("/proc/self/../self/fd/9", PROGRAM),
        ("/proc/thread-self/fd/9", PROGRAM),
        ("/proc/self/cwd/mine", PROGRAM),
        ("/proc/self/root/bin/true", PROGRAM),
        ("/proc/self/exe", OWN),
        ("//proc//self/exe", OWN),
        ("oneself", OWN),
        ("/proc/self/cwd/oneself", OWN),
        ("/../../" + PROGRAM, PROGRAM),
    ],
)
def test_a_path_leads_where_it_leads_its_caller(there: int, path: str, real: str) -> None:
    assert caller.program(there, path.encode()).path == real


@pytest.mark.parametrize("path", ["self/fd/9", "./self/cwd/mine", "thread-self/fd/9"])
def test_a_path_that_begins_in_proc_leads_where_it_leads_its_caller(there: int, path: str) -> None:
    begin = os.open("/proc", os.O_PATH)
    found = resolve.opened(there, begin, path.encode())
    assert os.readlink(f"/proc/self/fd/{found}") == PROGRAM
    for each in (begin, found):
        os.close(each)


def test_nothing_is_shown_of_the_process_that_resolves(there: int) -> None:
    begin = os.open("/", os.O_PATH)
    for path in (f"/proc/{os.getpid()}/cwd", f"/proc/{threading.get_native_id()}/fd/0"):
        with pytest.raises(PermissionError):
            resolve.opened(there, begin, path.encode())
    os.close(begin)


@pytest.mark.parametrize("path", ["nothing", "/proc/self/fd/99", "round", "mine/x", "/dev/fd/9/"])
def test_what_leads_nowhere_is_an_error(there: int, path: str) -> None:
    before = os.listdir("/proc/self/fd")
    if path.endswith("9/"):
        assert caller.program(there, path.encode()).path == PROGRAM  # the kernel refuses it
        return
    try:
        found = caller.program(there, path.encode())
    except OSError:
        found = None
    assert found in (None, caller.NOT_KNOWN)
    assert os.listdir("/proc/self/fd") == before


def test_a_way_that_is_too_long_is_not_gone(there: int) -> None:
    path = b"/proc/self/cwd" + b"/sub/.." * 500 + b"/mine"
    assert caller.program(there, path).path == UNKNOWN


def test_what_has_no_name_is_unknown(there: int, tmp_path: Path) -> None:
    file = tmp_path / "gone"
    file.write_text("x")
    with (
        file.open() as held,
        subprocess.Popen(
            [OWN, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[held.fileno()]
        ) as holder,
    ):
        file.unlink()
        path = f"/proc/{holder.pid}/fd/{held.fileno()}"
        assert caller.program(there, path.encode()).path == UNKNOWN
        # Not even when another file takes the name that the deleted file seems to have.
        Path(f"{file} (deleted)").write_text("y")
        assert caller.program(there, path.encode()).path == UNKNOWN
        holder.kill()


def test_a_script_runs_as_what_interprets_it(there: int, tmp_path: Path) -> None:
    def identity(path: object) -> tuple[int, int]:
        status = os.stat(str(path))
        return status.st_dev, status.st_ino

    script = caller.program(there, b"script")
    names = (tmp_path / "script", tmp_path / "other", PROGRAM)
    assert script == Program(str(tmp_path / "script"), frozenset(map(identity, names)))
    assert caller.running(there) == Program(OWN, frozenset([identity(OWN)]))


def test_a_thread_belongs_to_its_process() -> None:
    found: list[object] = []

    def look() -> None:
        found.append(caller.process(threading.get_native_id()))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert found == [caller.process(os.getpid())]


def test_a_process_that_is_gone_is_an_error() -> None:
    with subprocess.Popen(["/bin/true"]) as process:
        process.wait()
    with pytest.raises(OSError, match="No such"):
        caller.process(process.pid)
    assert caller.running(process.pid) == caller.NOT_KNOWN
