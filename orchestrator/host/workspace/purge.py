"""Removes a workspace's files in a process that has only their owner's privileges."""

import errno
import os
import subprocess
import sys
from pathlib import Path

from orchestrator.ground.errors import PaddockError
from orchestrator.host.workspace import purge_helper


class PurgeError(PaddockError):
    """A workspace could not be removed. The call may be repeated."""

    code = "sandbox_unavailable"


def purge_directory(slot: Path, data: Path, uid: int, *, time_limit: float = 300.0) -> None:
    """Removes a slot and its directory `data` with everything in it; blocks.

    Succeeds if the slot is already gone. `uid` is the workspace's, `time_limit` is in seconds. No
    command may be running in the workspace. Raises: PurgeError if part of it remains.
    """
    try:
        if not _gone(data):
            empty_directory(data, uid, time_limit)
            data.rmdir()
        _gone(slot)
    except OSError as error:
        raise PurgeError(f"the workspace could not be removed: {error.strerror}") from error


def _gone(directory: Path) -> bool:
    """Removes an empty directory; False if it is not empty."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


def empty_directory(data: Path, uid: int, time_limit: float) -> None:
    """Removes everything in the directory as its owner `uid`; blocks. Raises: PurgeError."""
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", purge_helper.__file__, os.fspath(data), str(uid)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={},
            cwd="/",
            start_new_session=True,
            timeout=time_limit,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise PurgeError(
            f"the workspace could not be removed within {time_limit:g} s; try again"
        ) from error
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise PurgeError(f"the workspace could not be removed: {lines[-1][:200]}")
