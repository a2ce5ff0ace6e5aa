"""Removing a workspace's files, in a process that has no more power than their owner."""

import asyncio
import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from orchestrator.errors import PaddockError
from orchestrator.workspace import purge_helper
from orchestrator.workspace.paths import data_path, slot_path


class PurgeError(PaddockError):
    """A workspace could not be removed; the call may be tried again."""


async def purge_slot(state_dir: Path, slot: str, uid: int, *, time_limit: float = 300.0) -> None:
    """Removes a slot and everything in it; a slot that is gone is fine.

    `uid` is the workspace's, `time_limit` in seconds. No command may run in the workspace.
    Raises: PurgeError: some of it is left.
    """
    data = data_path(state_dir, slot)
    try:
        if not _gone(data):
            await _empty(data, uid, time_limit)
            data.rmdir()
        _gone(slot_path(state_dir, slot))
    except OSError as error:
        raise PurgeError(f"the workspace could not be removed: {error.strerror}") from error


def _gone(directory: Path) -> bool:
    """Removes an empty directory; False for one that isn't empty."""
    try:
        directory.rmdir()
    except FileNotFoundError:
        return True
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise
        return False
    return True


async def _empty(data: Path, uid: int, time_limit: float) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-I",
        "-S",
        purge_helper.__file__,
        os.fspath(data),
        str(uid),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(time_limit):
            _, output = await process.communicate()
    except TimeoutError as error:
        raise PurgeError(
            f"the workspace could not be removed within {time_limit:g} s; try again"
        ) from error
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        lines = output.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise PurgeError(f"the workspace could not be removed: {lines[-1][:200]}")
