"""Paths as E2B's SDKs name them. Pure.

Their sandboxes have the home `/home/user`. Here it is the workspace, wherever the session has it.
"""

import posixpath

from orchestrator.work.files.file_entries import FileEntry

_HOME = "/home/user"


def inner(path: str, workspace: str) -> str:
    """The path in the form of this API: relative ones begin in the workspace."""
    if path in ("", "~"):
        return "."
    if path.startswith("~/"):
        path = path[2:].lstrip("/") or "."
    if workspace != _HOME and (path == _HOME or path.startswith(_HOME + "/")):
        return path.removeprefix(_HOME).lstrip("/") or "."
    return path


def absolute(path: str, workspace: str) -> str:
    """The path as an entry shows it."""
    return posixpath.normpath(posixpath.join(workspace, path))


def target_of(entry: FileEntry, workspace: str) -> str | None:
    """Where a link leads, absolute; None for anything else."""
    if entry.target is None:
        return None
    directory = posixpath.dirname(absolute(entry.path, workspace))
    return posixpath.normpath(posixpath.join(directory, entry.target))
