"""Prepares a commit, carries it out, and finishes or undoes one that was interrupted."""

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

from orchestrator.ground.file_handles import opened
from orchestrator.host.workspace.purge_helper import empty
from orchestrator.host.workspace.staged import base as records
from orchestrator.host.workspace.staged import commit_steps, descriptors
from orchestrator.host.workspace.staged import journal as journals
from orchestrator.host.workspace.staged.base import Base
from orchestrator.host.workspace.staged.changes import Change, RefusedEntry, walk
from orchestrator.host.workspace.staged.cleanup import clear
from orchestrator.host.workspace.staged.commit_steps import CommitSelection, Expected
from orchestrator.host.workspace.staged.names import printable_name

Json = dict[str, Any]
_MOST_REPORTED = 1000


class CommitError(Exception):
    """The commit was not made; nothing of the workspace is changed."""


class Staged(NamedTuple):
    """The open directories of a session: what is staged, the workspace, and the commit's own."""

    upper: int
    lower: int
    area: int


class CommitPlan(NamedTuple):
    """A commit as it would be made, and what prevents it."""

    taken: list[Change]
    # The entries of directories that are removed.
    removed: list[str]
    steps: list[commit_steps.Step]
    conflicts: list[Json]
    refused: list[RefusedEntry]
    missing: list[str]
    lacking: list[str]
    digest: str
    # The time at which the record of the base may begin anew; None: a base has changed.
    since: int | None

    def report(self) -> Json:
        """What the control plane needs to decide about it."""
        return {
            "counts": commit_steps.counted(self.taken),
            "refs": commit_steps.refs_of(self.taken),
            "made": [change.ref for change in self.taken if change.makes_directory],
            "removed": self.removed,
            "conflicts": self.conflicts[:_MOST_REPORTED],
            "refused": [each._asdict() for each in self.refused[:_MOST_REPORTED]],
            "missing": self.missing[:_MOST_REPORTED],
            "lacking": self.lacking[:_MOST_REPORTED],
            "digest": self.digest,
        }


def prepare(staged: Staged, selection: CommitSelection) -> CommitPlan:
    """Plans a commit of what is staged; changes nothing. Raises: OSError, TooMuchError."""
    began, base = records.now(), records.read(staged.area)
    merged: dict[str, int] = {}
    changes: list[Change] = []
    refused: list[RefusedEntry] = []
    conflicts: list[Json] = []
    removed: dict[str, list[str]] = {}
    all_unchanged = True
    for found in walk(staged.upper, staged.lower, merged):
        if isinstance(found, RefusedEntry):
            refused.append(found)
            continue
        changes.append(found)
        if found.removes_directory and found.lower is not None:
            entries = descriptors.below(found.lower, found.name)
            removed[found.ref] = [
                f"{found.ref}/{printable_name(os.fsencode(place))}" for place, _ in entries
            ]
        changed = base.changed(found)
        all_unchanged = all_unchanged and not changed
        conflict = _of_base(found) if changed else _of_review(found, selection)
        if conflict is not None:
            conflicts.append(conflict)
    taken, lacking = commit_steps.with_parents(changes, selection)
    above = {parent for change in taken for parent in commit_steps.parents(change.ref)}
    closed = {ref: mode for ref, mode in merged.items() if ref in above and mode & 0o700 != 0o700}
    refs = set(commit_steps.refs_of(taken))
    return CommitPlan(
        taken,
        [ref for change in taken for ref in removed.get(change.ref, ())],
        commit_steps.steps_for(taken, closed),
        [conflict for conflict in conflicts if conflict["ref"] in refs],
        commit_steps.blocked(refused, selection),
        commit_steps.missing(selection, changes),
        lacking,
        _digest(taken),
        max(began, base.since) if all_unchanged else None,
    )


def commit(
    staged: Staged, selection: CommitSelection, digest: str, reached: Callable[[], None]
) -> Json:
    """Makes the commit that was prepared; `reached` is called at each step.

    Raises: CommitError if it was not made.
    """
    settle(staged, reached)
    prepared = prepare(staged, selection)
    if prepared.digest != digest or prepared.conflicts or prepared.refused:
        raise CommitError("what is staged, or the workspace, has changed meanwhile: try again")
    try:
        _copy_all(staged, prepared.taken, selection)
        reached()
        refs = commit_steps.refs_of(prepared.taken)
        journal = journals.Journal(prepared.steps, refs, prepared.since, digest)
        journals.begin(staged.area, journal)
    except OSError as error:
        _empty_stores(staged.area)
        raise CommitError(f"what is staged can't be copied: {error.strerror or error}") from error
    reached()
    report = settle(staged, reached)
    if report["settled"] != "committed":
        raise CommitError(f"it was undone: {report['error']}")
    return report


def settle(staged: Staged, reached: Callable[[], None]) -> Json:
    """Finishes or undoes a commit that was begun; `settled`: committed, undone, or null for none.

    `latest` is the digest of the latest commit that was made. Raises: OSError if neither is
    possible at present.
    """
    name, error = journals.pending(staged.area), None
    report: Json = {"settled": None, "error": None, "count": 0}
    report["latest"] = records.read(staged.area).committed
    if name is None:
        _empty_stores(staged.area)
        return report
    journal = journals.read_journal(staged.area, name)
    steps, refs = journal.steps, journal.refs
    report["count"] = len(refs)
    if name == journals.MAKE:
        try:
            journals.make(staged.lower, staged.area, steps, reached)
            descriptors.sync_all(staged.area)
            name = journals.rename(staged.area, name, journals.CLEAN)
        except OSError as failure:
            error = failure.strerror or str(failure)
            name = journals.rename(staged.area, name, journals.UNDO)
        reached()
    if name == journals.UNDO:
        journals.undo(staged.lower, staged.area, steps, reached)
        descriptors.sync_all(staged.area)
    else:
        clear(staged.upper, staged.lower, refs)
        reached()
        _record_base(staged, journal)
        descriptors.sync_all(staged.area)
    reached()
    os.unlink(name, dir_fd=staged.area)
    reached()
    with suppress(OSError):  # what is left is removed before the next commit
        _empty_stores(staged.area)
    report["settled"] = "undone" if name == journals.UNDO else "committed"
    report["error"] = error or ("a step failed" if name == journals.UNDO else None)
    return report


def _of_base(change: Change) -> Json:
    """The conflict of a change whose base has changed since it was staged."""
    return {"ref": change.ref, "expected": None, "actual": _base_digest(change)}


def _of_review(change: Change, selection: CommitSelection) -> Json | None:
    """The conflict of a change that is not as it was reviewed; None if it is."""
    if selection.expected is None or change.ref not in selection.expected:
        return None
    wanted = selection.expected[change.ref]
    mode = None if change.type == "delete" else change.mode
    actual = _staged_digest(change)
    if Expected(actual, mode) == wanted:
        return None
    return {"ref": change.ref, "expected": wanted.fingerprint, "actual": actual}


def _base_digest(change: Change) -> str | None:
    if change.base is None or change.lower is None or change.base_kind != "file":
        return None
    try:
        with descriptors.reading(change.lower, change.name, change.base) as handle:
            return descriptors.digest_of(handle)
    except OSError:
        return None


def _staged_digest(change: Change) -> str | None:
    if change.type == "delete" or change.kind == "directory":
        return None
    if change.kind == "symlink":
        target = os.readlink(os.fsencode(change.name), dir_fd=change.upper)
        return descriptors.digest_of_text(target)
    try:
        with descriptors.reading(change.upper, change.name, change.staged) as handle:
            return descriptors.digest_of(handle)
    except OSError:
        return None


def _digest(taken: list[Change]) -> str:
    """The digest of the changes: it changes with every byte of them."""
    found = hashlib.sha256()
    for change in taken:
        facts = change.staged
        found.update(f"{change.type}\0{change.ref}\0{change.kind}\0".encode())
        found.update(f"{facts.st_mode} {facts.st_ino} {facts.st_ctime_ns}\0".encode())
    return found.hexdigest()


def _copy_all(staged: Staged, taken: list[Change], selection: CommitSelection) -> None:
    """Copies files and links to the commit's own directory. Raises: OSError, CommitError.

    Without the copies, a program that still has a file open could change it after the commit.
    """
    _empty_stores(staged.area)
    os.mkdir(journals.NEW, 0o700, dir_fd=staged.area)
    with opened(journals.NEW, dir_fd=staged.area) as new:
        for number, change in enumerate(taken, 1):
            if change.type == "delete" or change.kind == "directory":
                continue
            with descriptors.parent_of(staged.upper, change.ref) as (parent, name):
                found = _copy(parent, name, change, new, str(number))
            wanted = (selection.expected or {}).get(change.ref)
            if wanted is not None and found != wanted.fingerprint:
                raise CommitError(f"{change.ref} changed while it was read")


def _copy(parent: int, name: str, change: Change, new: int, number: str) -> str:
    """Copies a file or link; returns the fingerprint of the copy."""
    if change.kind == "symlink":
        target = os.readlink(os.fsencode(name), dir_fd=parent)
        os.symlink(target, os.fsencode(number), dir_fd=new)
        return descriptors.digest_of_text(target)
    found = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        descriptors.reading(parent, name, change.staged) as source,
        opened(number, flags, dir_fd=new) as copy,
    ):
        for data in descriptors.chunks(source):
            found.update(data)
            descriptors.write_all(copy, data)
        os.fchmod(copy, change.mode)
        os.utime(copy, ns=(change.staged.st_atime_ns, change.staged.st_mtime_ns))
    return f"sha256:{found.hexdigest()}"


def _record_base(staged: Staged, journal: journals.Journal) -> None:
    before, since = records.read(staged.area), journal.since
    ours = {} if since is not None else before.ours
    found = records.left(staged.lower, journal.refs)
    began = before.since if since is None else since
    records.write(staged.area, Base(began, {**ours, **found}, journal.digest))


def _empty_stores(area: int) -> None:
    """Removes the commit's own directories, which only a commit that is under way needs."""
    for name in (journals.NEW, journals.OLD):
        with suppress(FileNotFoundError):
            with opened(name, dir_fd=area) as handle:
                empty(handle)
            os.rmdir(name, dir_fd=area)
