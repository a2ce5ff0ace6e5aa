"""Where a workspace's files are, and what an id may be: pure functions."""

import posixpath
import re
from pathlib import Path
from urllib.parse import quote

from orchestrator.errors import ValidationError
from paddock.contract.words import ID_PATTERN
from sandbox_agent.outside import outside
from sandbox_agent.protocol import WORKSPACE_DIR

SLOT_PATTERN = r"[0-9a-f]{16}"
PATH_RULE = "path-outside-workspace"


def validate_id(workspace_id: str) -> str:
    """Returns it unchanged. Raises: ValidationError naming `id`."""
    if not re.fullmatch(ID_PATTERN, workspace_id):
        raise ValidationError(
            "an id has 1 to 128 of A-Z a-z 0-9 . _ - and begins with a letter or a digit",
            field="id",
        )
    return workspace_id


def encode_id(workspace_id: str) -> str:
    """The percent-encoded id, as it names the workspace's visible directory."""
    return quote(validate_id(workspace_id), safe="")


def visible_path(root: Path, workspace_id: str) -> Path:
    """Where the operator finds a workspace: a link below `root`."""
    return root / encode_id(workspace_id)


def slots_path(state_dir: Path) -> Path:
    """The directory of all slots."""
    return state_dir / "slots"


def slot_path(state_dir: Path, slot: str) -> Path:
    """The directory that keeps one workspace."""
    if not re.fullmatch(SLOT_PATTERN, slot):
        raise ValueError(f"not a slot name: {slot!r}")
    return slots_path(state_dir) / slot


def inside_path(path: str) -> str | None:
    """A client's path relative to the workspace, `.` for itself; None when its text leaves it.

    It is relative to the workspace, or absolute under /workspace.
    """
    absolute = posixpath.normpath(posixpath.join(WORKSPACE_DIR, path))
    if absolute == WORKSPACE_DIR:
        return "."
    if not absolute.startswith(WORKSPACE_DIR + "/"):
        return None
    return absolute.removeprefix(WORKSPACE_DIR + "/")


def leads_inside(path: str, target: str) -> bool:
    """Whether a link at `path` to that text stays in the workspace, as its text says.

    `path` is relative to the workspace; the target must be relative, too.
    """
    if target.startswith("/"):
        return False
    return inside_path(posixpath.join(posixpath.dirname(path), target)) is not None


def outside_path(path: str, *, writes: bool) -> str | None:
    """The absolute form of a path outside of the workspace, where file operations may act on it.

    That is for levels that allow any command: the image's files can be read, /tmp written to.
    """
    absolute = posixpath.normpath(posixpath.join(WORKSPACE_DIR, path))
    absolute = f"/{absolute.lstrip('/')}"
    return absolute if outside(absolute, writes=writes) else None


def escape_message(path: str) -> str:
    """What is said of a path that leaves the workspace."""
    return f"path escapes workspace: {path[:256]}"
