"""Removes a workspace's files in a process that has only their owner's privileges."""

import errno
from pathlib import Path

from orchestrator.ground.errors import PaddockError
from orchestrator.host.workspace import purge_helper
from orchestrator.host.workspace.helper import Helper, HelperError, LateHelperError


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
    helper = Helper(purge_helper.__name__, uid, time_limit)
    try:
        answer = helper.ask({}, {"top": data})
    except LateHelperError:
        raise PurgeError(
            f"the workspace could not be removed within {time_limit:g} s; try again"
        ) from None
    except HelperError:
        raise PurgeError("the workspace could not be removed: no reason given") from None
    except OSError as error:
        raise PurgeError(f"the workspace could not be removed: {error.strerror}") from error
    if "error" in answer:
        raise PurgeError(f"the workspace could not be removed: {str(answer['error'])[:200]}")
