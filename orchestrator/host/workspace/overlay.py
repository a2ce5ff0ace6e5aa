"""Overlay mounts: writes go to an upper directory, and the lower one stays unchanged."""

import ctypes
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace import mounts

_SYS_FSOPEN = 430
_SYS_FSCONFIG = 431
_SYS_FSMOUNT = 432
_CLOEXEC = 1
_SET_FLAG, _SET_STRING, _CREATE = 0, 1, 6

_OPTIONS = {
    # The kernel could rename a directory by a mark that says where its content is. A session that
    # left such a mark in its workspace would then decide what another directory contains.
    "redirect_dir": "nofollow",
    # A staged file has its whole content, so it can be read and compared without the overlay.
    "metacopy": "off",
    # With these two off, the kernel allows the workspace to change while no overlay is mounted,
    # which a commit does.
    "index": "off",
    "xino": "off",
}
# The workspace's user can read and remove the kernel's marks, because the process that commits has
# no rights of root. A session can't set them through the mount: there, the kernel gives attributes
# with these names other names in the staging area.
_FLAGS = ("userxattr",)

TRIAL_UID = 65534
_TRIAL = """
import os, sys
handle, uid = map(int, sys.argv[1:])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
os.fchdir(handle)
with open("kept", "a") as file:
    file.write("x")
os.unlink("gone")
os.rename("moved", "there")
os.mkdir("made")
"""
_TRIAL_SECONDS = 20


def mount(lower: Path, upper: Path, work: Path, target: Path, *, noexec: bool) -> None:
    """Mounts `upper` over `lower` at `target`: nosuid, nodev, and noexec if requested.

    None of them may be a symbolic link. `work` is an empty directory beside `upper`. The mount has
    its flags before it is visible, and doesn't show where its directories are. Raises: MountError.
    """
    attributes = mounts.MOUNT_ATTR_NOSUID | mounts.MOUNT_ATTR_NODEV
    attributes |= mounts.MOUNT_ATTR_NOEXEC if noexec else 0
    try:
        with mounts.opened(lower, upper, work, target) as (lower_fd, upper_fd, work_fd, target_fd):
            context = mounts.syscall(_SYS_FSOPEN, b"overlay", _CLOEXEC)
            try:
                places = {"lowerdir": lower_fd, "upperdir": upper_fd, "workdir": work_fd}
                options = {name: f"/proc/self/fd/{place}" for name, place in places.items()}
                for name, value in {"source": "staged", **options, **_OPTIONS}.items():
                    _configure(context, _SET_STRING, name, value.encode())
                for name in _FLAGS:
                    _configure(context, _SET_FLAG, name, None)
                mounts.syscall(_SYS_FSCONFIG, context, _CREATE, None, None, 0)
                mounted = mounts.syscall(_SYS_FSMOUNT, context, _CLOEXEC, attributes)
            finally:
                os.close(context)
            try:
                mounts.attach(mounted, target_fd)
            finally:
                os.close(mounted)
    except OSError as error:
        raise mounts.explained("what is staged can't be mounted", error) from error


def refusal(directory: Path, uid: int = TRIAL_UID) -> str | None:
    """Why sessions can't stage changes on the file system of `directory`; None if they can.

    Tries what a session does, as the user `uid`, below an empty `directory` that is emptied again.
    """
    names = ("lower", "upper", "work", "merged")
    places = {name: directory / name for name in names}
    try:
        for name, place in places.items():
            place.mkdir(mode=0o700)
            if name in ("lower", "upper"):
                os.chown(place, uid, uid)
        _make_files(places["lower"], uid)
        merged = places["merged"]
        mount(places["lower"], places["upper"], places["work"], merged, noexec=True)
        try:
            return _tried(merged, uid)
        finally:
            mounts.unmount(str(merged))
    except PaddockError as error:
        return error.detail
    except OSError as error:
        return f"an overlay can't be used: {error.strerror}"
    finally:
        _remove_trial(places)


def _configure(context: int, command: int, name: str, value: bytes | None) -> None:
    mounts.syscall(_SYS_FSCONFIG, context, command, ctypes.c_char_p(name.encode()), value, 0)


def _make_files(lower: Path, uid: int) -> None:
    for name in ("kept", "gone", "moved"):
        (lower / name).touch(mode=0o600)
        os.chown(lower / name, uid, uid)


def _tried(merged: Path, uid: int) -> str | None:
    try:
        with opened(merged) as handle:
            done = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _TRIAL, str(handle), str(uid)],
                pass_fds=[handle],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env={},
                timeout=_TRIAL_SECONDS,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return "a trial of an overlay takes too long"
    if done.returncode == 0:
        return None
    lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
    return (
        "an overlay does not let its user write; in a container, the control plane needs "
        f"DAC_OVERRIDE and FOWNER: {lines[-1][:200]}"
    )


def _remove_trial(places: dict[str, Path]) -> None:
    """Removes the trial's files by name: nobody but us and the kernel has made any there."""
    kernels = [places["work"] / name for name in ("work", "index")]
    for directory in (places["lower"], places["upper"], *kernels):
        for entry in directory.iterdir() if directory.is_dir() else ():
            with suppress(OSError):
                entry.rmdir() if entry.is_dir() else entry.unlink()
    for directory in (*kernels, *places.values()):
        with suppress(OSError):
            directory.rmdir()
