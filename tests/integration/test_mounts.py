"""The control plane's mounts, and a sandbox's directory around them."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.host.workspace import mounts
from orchestrator.host.workspace.mounts import MountError
from orchestrator.host.workspace.slots import make_data
from orchestrator.state.directory import SandboxDirectory, Shared, left_over

UID = 1_900_001_234


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    yield make_data(tmp_path / "data", UID)
    for point in mounts.mounts_under(str(tmp_path)):
        mounts.unmount(point)


def made(state_dir: Path, data: Path, **shared: Shared) -> SandboxDirectory:
    """A sandbox's directory with all its mounts, which are also removed when the test fails."""
    directory = SandboxDirectory.fresh(state_dir)
    try:
        directory.make()
        directory.name_session(UID, "/nonexistent")
        directory.mount_workspace(data, noexec=True)
        directory.share(shared)
    except BaseException:
        directory.release()
        raise
    return directory


def test_noexec_holds(tmp_path: Path, data: Path) -> None:
    script = data / "script"
    script.write_text("#!/bin/sh\necho ran\n")
    script.chmod(0o755)
    target = tmp_path / "shown"
    target.mkdir()

    mounts.bind(str(data), str(target), noexec=False)
    assert subprocess.run([target / "script"], capture_output=True, check=True).stdout == b"ran\n"
    assert mounts.mounts_under(str(tmp_path)) == [str(target)]
    flags = os.statvfs(target).f_flag
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV
    mounts.unmount(str(target))

    mounts.bind(str(data), str(target), noexec=True)
    with pytest.raises(PermissionError):
        subprocess.run([target / "script"], check=True)
    # The mount of the data themselves is unchanged.
    assert subprocess.run([script], capture_output=True, check=True).stdout == b"ran\n"
    mounts.unmount(str(target))
    mounts.unmount(str(target))
    assert mounts.mounts_under(str(tmp_path)) == []
    assert list(target.iterdir()) == []


def test_mounts_on_top_of_each_other_go_together(tmp_path: Path, data: Path) -> None:
    target = tmp_path / "shown"
    target.mkdir()
    mounts.bind(str(data), str(target), noexec=True)
    mounts.bind(str(data), str(target), noexec=True)
    mounts.unmount(str(target))
    assert mounts.mounts_under(str(tmp_path)) == []


def test_links_are_not_followed(tmp_path: Path, data: Path) -> None:
    (tmp_path / "link").symlink_to("/etc")
    (tmp_path / "target").mkdir()
    for source, target in (("link", "target"), ("target", "link"), ("missing", "target")):
        with pytest.raises(MountError):
            mounts.bind(str(tmp_path / source), str(tmp_path / target), noexec=True)
    assert mounts.mounts_under(str(tmp_path)) == []
    mounts.unmount(str(tmp_path / "missing"))


def test_without_privilege_the_reason_is_said(tmp_path: Path, data: Path) -> None:
    (tmp_path / "target").mkdir()
    child = os.fork()
    if child == 0:  # never returns into the test run
        try:
            os.chmod(tmp_path, 0o755)
            drop_sys_admin()
            mounts.bind(str(data), str(tmp_path / "target"), noexec=True)
        except MountError as error:
            os._exit(0 if "CAP_SYS_ADMIN" in error.detail else 2)
        finally:
            os._exit(3)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def drop_sys_admin() -> None:
    """Removes CAP_SYS_ADMIN (21) from this process, by capset with raw structures."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, sets) == 0
    for index in (0, 1, 2):
        sets[index] &= ~(1 << 21)
    assert libc.capset(header, sets) == 0


def test_a_sandbox_directory_comes_and_goes(tmp_path: Path, data: Path) -> None:
    (data / "kept").write_text("x")
    directory = made(tmp_path, data)
    assert [found.path for found in left_over(tmp_path)] == [directory.path]
    assert (directory.workspace / "kept").read_text() == "x"
    assert f"sandbox:x:{UID}:{UID}::/nonexistent:" in directory.passwd.read_text()
    assert directory.run.stat().st_mode & 0o777 == 0o700
    assert directory.group.stat().st_mode & 0o777 == 0o644
    assert len(os.fsencode(directory.name)) == 16
    (directory.run / "boot.json").write_text("{}")  # as earlier versions did
    directory.socket.touch()
    directory.release()
    directory.release()
    assert left_over(tmp_path) == []
    assert (data / "kept").read_text() == "x"


def test_release_deletes_nothing_that_it_does_not_know(tmp_path: Path, data: Path) -> None:
    directory = made(tmp_path, data)
    mounts.unmount(str(directory.workspace))
    (directory.workspace / "file").write_text("x")
    with pytest.raises(OSError, match="not empty"):
        directory.release()
    assert (directory.workspace / "file").read_text() == "x"


def test_a_failed_mount_leaves_no_directory(tmp_path: Path) -> None:
    with pytest.raises(MountError):
        made(tmp_path, tmp_path / "missing")
    assert left_over(tmp_path) == []


def test_what_is_shared_is_found_and_released(tmp_path: Path, data: Path) -> None:
    host = tmp_path / "host"
    host.mkdir()
    (host / "kept").write_text("x")
    shared = {"a": Shared(str(host), read_only=True), "b": Shared(str(host), read_only=False)}
    directory = made(tmp_path, data, **shared)
    assert (directory.mounts / "a" / "kept").read_text() == "x"
    with pytest.raises(OSError, match="Read-only file system"):
        (directory.mounts / "a" / "new").touch()
    (directory.mounts / "b" / "new").touch()
    # The state that a start after a kill finds.
    (found,) = left_over(tmp_path)
    found.release()
    assert left_over(tmp_path) == []
    assert mounts.mounts_under(str(tmp_path)) == []
    assert sorted(os.listdir(host)) == ["kept", "new"]


def test_a_directory_that_can_not_be_shared_leaves_nothing(tmp_path: Path, data: Path) -> None:
    shared = {"a": Shared(str(data), read_only=True), "b": Shared("/nowhere", read_only=True)}
    with pytest.raises(MountError):
        made(tmp_path, data, **shared)
    assert left_over(tmp_path) == []
    assert mounts.mounts_under(str(tmp_path)) == []


# In a mount namespace of its own, whose mounts are shared like those of most hosts: a sandbox that
# follows the point sees the data, and nothing that the host mounts below the data.
_FOLLOWED = """
import os, subprocess, sys
from orchestrator.host.workspace import mounts
def mount(*words): subprocess.run(["mount", *words], check=True)
os.chdir(sys.argv[1])
mount("-t", "tmpfs", "host", ".")
mount("--make-shared", ".")
os.chdir(sys.argv[1])
for name in ("data/below", "point", "sandbox"): os.makedirs(name)
here = os.getcwd()
mounts.bind(f"{here}/point", f"{here}/point", noexec=True, shared=True)
mount("--bind", "point", "sandbox")
mount("--make-slave", "sandbox")
mounts.bind(f"{here}/data", f"{here}/point", noexec=True)
mount("-t", "tmpfs", "host", "data/below")
open("data/below/canary", "w").close()
print(os.listdir("sandbox"), os.listdir("sandbox/below"))
"""


def test_a_sandbox_does_not_follow_the_host_s_own_mounts(tmp_path: Path) -> None:
    unshared = ["unshare", "--mount", "--propagation", "private"]
    python = [sys.executable, "-c", _FOLLOWED, str(tmp_path)]
    seen = subprocess.run([*unshared, *python], check=True, capture_output=True, text=True)
    assert seen.stdout == "['below'] []\n"
