"""The staging area of one session: its changes of its workspace, until the host commits them.

It is beside the workspace's files, on the same file system, so it counts for the workspace's size.
Only root can enter it, and the sandbox sees nothing of it but the mount that shows both together.
"""

import json
import os
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace import overlay
from orchestrator.host.workspace.purge import empty_directory

STAGING = "staging"
_KEY = re.compile(r"[0-9a-f]{16}")
_REMOVE_SECONDS = 300.0
# CLOCK_REALTIME_COARSE, from which file systems take their times.
_COARSE_CLOCK = 5
_SECOND = 10**9  # nanoseconds
_JOURNALS = ("journal.make", "journal.undo", "journal.clean")


@dataclass(frozen=True, slots=True)
class StagingArea:
    """The directory of one area; its name is the session's key."""

    path: Path

    @property
    def upper(self) -> Path:
        """What is staged; its owner is the workspace's user."""
        return self.path / "upper"

    @property
    def work(self) -> Path:
        """For the kernel only."""
        return self.path / "work"

    @property
    def commit(self) -> Path:
        """The journal and the files of a commit; its owner is the workspace's user."""
        return self.path / "commit"

    @property
    def exists(self) -> bool:
        """Whether it was made completely."""
        return self.commit.is_dir() and os.path.lexists(self.commit / "base.json")

    @property
    def unsettled(self) -> bool:
        """Whether a commit was begun and neither finished nor undone."""
        return any(os.path.lexists(self.commit / name) for name in _JOURNALS)

    def make(self, uid: int) -> None:
        """Makes what is missing. Raises: PurgeError, OSError."""
        if not self.exists:
            self.remove(uid)  # a part of an area is the rest of a removal
        for directory in (self.path.parent, self.path, self.work):
            directory.mkdir(mode=0o700, exist_ok=True)
        for directory in (self.upper, self.commit):
            directory.mkdir(mode=0o700, exist_ok=True)
            os.chown(directory, uid, uid, follow_symlinks=False)
        if self.exists:
            return
        # A file with a later change time was changed by somebody else. Files of an image that was
        # just shrunk have change times up to the end of the present second.
        since = (time.clock_gettime_ns(_COARSE_CLOCK) // _SECOND + 1) * _SECOND
        record = json.dumps({"since": since, "ours": {}})
        draft = self.path / "base.json"
        draft.write_text(record, encoding="ascii")
        os.chown(draft, uid, uid)
        draft.rename(self.commit / "base.json")

    def remove(self, uid: int) -> None:
        """Removes it with everything that is staged; nothing has it mounted.

        May be repeated. Raises: PurgeError, OSError.
        """
        # The kernel's files there belong to the user, but the directory itself does not.
        inner = self.work / "work"
        for directory in (inner, self.work / "index"):
            with suppress(FileNotFoundError, OSError):
                directory.rmdir()
        if inner.exists():
            os.chown(inner, uid, uid, follow_symlinks=False)
            empty_directory(inner, uid, _REMOVE_SECONDS)
            inner.rmdir()
        # The part that makes it complete goes first, so that the rest is no area any more.
        for directory in (self.commit, self.upper):
            if directory.exists():
                empty_directory(directory, uid, _REMOVE_SECONDS)
                directory.rmdir()
            if directory == self.commit:
                FaultPoint.ROLLBACK_BEGUN.reached()
        if self.work.exists():
            self.work.rmdir()
        (self.path / "base.json").unlink(missing_ok=True)
        with suppress(FileNotFoundError):
            self.path.rmdir()


def area_of(data: Path, session_key: str) -> StagingArea:
    """The area of that session, beside the workspace's files; it need not exist."""
    if not _KEY.fullmatch(session_key):
        raise ValueError(f"not a session's key: {session_key!r}")
    return StagingArea(data.parent / STAGING / session_key)


def areas_in(data: Path) -> list[StagingArea]:
    """The areas of all sessions of a workspace."""
    try:
        found = sorted((data.parent / STAGING).iterdir())
    except FileNotFoundError:
        return []
    return [StagingArea(path) for path in found if _KEY.fullmatch(path.name)]


def remove_all(data: Path, uid: int) -> None:
    """Removes all areas of a workspace. Raises: PurgeError, OSError."""
    for area in areas_in(data):
        area.remove(uid)
    with suppress(FileNotFoundError):
        (data.parent / STAGING).rmdir()


def refusal(directory: Path, uid: int = overlay.TRIAL_UID) -> str | None:
    """Why changes can't be staged in `directory`; None if a trial in it, as `uid`, succeeded.

    An id-mapped mount knows no users but its workspace's and root.
    """
    trial = directory / "trial"
    trial.mkdir(mode=0o700, exist_ok=True)
    try:
        return overlay.refusal(trial, uid)
    finally:
        with suppress(OSError):
            trial.rmdir()
