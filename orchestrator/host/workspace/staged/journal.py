"""Makes the steps of a commit, all or none, however often it is interrupted.

Every step moves entries between the workspace and the commit's own directories, so it is visible
whether a step was made, and each may be repeated or undone after a kill at any moment.
"""

import errno
import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace.staged import descriptors
from orchestrator.host.workspace.staged.commit_steps import Step

# The journal's name says what is to be done: make the steps, undo them, or clean up.
MAKE, UNDO, CLEAN = "journal.make", "journal.undo", "journal.clean"
NEW, OLD = "new", "old"
_NO_DIRECTORY = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class Journal(NamedTuple):
    """A commit that is decided.

    `refs` are the paths that are no longer staged after it. Unless `since` is None, the record of
    the base begins anew at that time. `digest` is the commit's; journals of earlier versions have
    none.
    """

    steps: list[Step]
    refs: list[str]
    since: int | None
    digest: str | None


def begin(area: int, journal: Journal) -> None:
    """Decides that the steps are made: from here on, no kill prevents them. Raises: OSError."""
    descriptors.sync_all(area)
    descriptors.write_file(area, MAKE, json.dumps(journal._asdict()).encode())


def pending(area: int) -> str | None:
    """The name of the journal, if there is one."""
    return next((name for name in (CLEAN, UNDO, MAKE) if descriptors.facts(area, name)), None)


def read_journal(area: int, name: str) -> Journal:
    """Raises: OSError, ValueError."""
    found = json.loads(descriptors.read_file(area, name))
    steps = [Step(*step) for step in found["steps"]]
    return Journal(steps, found["refs"], found["since"], found.get("digest"))


def rename(area: int, old: str, new: str) -> str:
    """Decides durably what is to be done next; returns the new name. Raises: OSError."""
    os.rename(old, new, src_dir_fd=area, dst_dir_fd=area)
    os.fsync(area)
    return new


def make(top: int, area: int, steps: Iterable[Step], reached: Callable[[], None]) -> None:
    """Makes every step that is not made yet. Raises: OSError."""
    with _stores(area) as (new, old):
        for step in steps:
            with descriptors.parent_of(top, step.ref) as (parent, name):
                _make(step, parent, name, new, old, reached)
            reached()


def undo(top: int, area: int, steps: list[Step], reached: Callable[[], None]) -> None:
    """Undoes every step that was made. Raises: OSError."""
    with _stores(area) as (new, old):
        for step in reversed(steps):
            directory = step.ref.rpartition("/")[0]
            try:
                opened = descriptors.open_beneath(top, directory, os.O_PATH | os.O_DIRECTORY)
            except OSError as error:
                if error.errno not in _NO_DIRECTORY:
                    raise
                continue  # its directory was not made, so neither was the step
            try:
                _undo(step, opened, step.ref.rpartition("/")[2], new, old, reached)
            finally:
                os.close(opened)
            reached()


def _make(
    step: Step, parent: int, name: str, new: int, old: int, reached: Callable[[], None]
) -> None:
    number = str(step.number)
    if step.kind == "mode":
        descriptors.set_mode(parent, name, step.mode)
    elif step.kind == "make":
        with suppress(FileExistsError):
            os.mkdir(name, step.mode, dir_fd=parent)
    elif step.kind == "remove":
        if descriptors.facts(old, number) is None:
            _move(parent, name, old, number)
    elif descriptors.facts(new, number) is not None:
        _move(parent, name, old, number)
        reached()
        os.rename(number, name, src_dir_fd=new, dst_dir_fd=parent)


def _undo(
    step: Step, parent: int, name: str, new: int, old: int, reached: Callable[[], None]
) -> None:
    number = str(step.number)
    if step.kind in ("mode", "make"):
        if step.number and descriptors.facts(old, number) is None:
            return  # what the directory replaces is still there
        try:
            if step.kind == "mode":
                descriptors.set_mode(parent, name, step.old_mode)
            else:
                os.rmdir(name, dir_fd=parent)
        except OSError as error:
            # The step was not made: nothing, or something else, is there.
            if error.errno not in (*_NO_DIRECTORY, errno.ENOTEMPTY):
                raise
    else:
        if step.kind == "put" and descriptors.facts(new, number) is None:
            _move(parent, name, new, number)
            reached()
        _move(old, number, parent, name)


def _move(source: int, name: str, target: int, number: str) -> None:
    """Moves an entry; does nothing if it is gone, or was moved before."""
    facts = descriptors.facts(source, name)
    if facts is None or descriptors.facts(target, number) is not None:
        return
    closed = descriptors.is_directory(facts) and not facts.st_mode & 0o200
    if closed:  # moving a directory writes its `..`
        descriptors.set_mode(source, name, facts.st_mode & 0o7777 | 0o700)
    os.rename(name, number, src_dir_fd=source, dst_dir_fd=target)
    if closed:
        descriptors.set_mode(target, number, facts.st_mode & 0o7777)


@contextmanager
def _stores(area: int) -> Iterator[tuple[int, int]]:
    """The directories of what is to be put in place, and of what was there."""
    for name in (NEW, OLD):
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=area)
    with opened(NEW, dir_fd=area) as new, opened(OLD, dir_fd=area) as old:
        yield new, old
