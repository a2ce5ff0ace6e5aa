"""Paths of workspace files and the rules for workspace ids: pure functions."""

import posixpath
import re
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import quote

from orchestrator.ground.errors import ValidationError
from paddock.contract.words import ID_PATTERN
from sandbox_agent.decide.outside_paths import containing, outside
from sandbox_agent.decide.protocol import WORKSPACE_DIR

SLOT_PATTERN = r"[0-9a-f]{16}"
PATH_RULE = "path-outside-workspace"


def validate_id(workspace_id: str) -> str:
    """Returns the id unchanged. Raises: ValidationError that names `id`."""
    if not re.fullmatch(ID_PATTERN, workspace_id):
        raise ValidationError(
            "an id has 1 to 128 characters of A-Z a-z 0-9 . _ - and begins with a letter or digit",
            field="id",
        )
    return workspace_id


def encode_id(workspace_id: str) -> str:
    """The percent-encoded id: the name of the workspace's visible directory."""
    return quote(validate_id(workspace_id), safe="")


def visible_path(root: Path, workspace_id: str) -> Path:
    """The path at which the operator finds a workspace: a link below `root`."""
    return root / encode_id(workspace_id)


def slots_path(state_dir: Path) -> Path:
    """The directory of all slots."""
    return state_dir / "slots"


def slot_path(state_dir: Path, slot: str) -> Path:
    """The directory that holds one workspace."""
    if not re.fullmatch(SLOT_PATTERN, slot):
        raise ValueError(f"not a slot name: {slot!r}")
    return slots_path(state_dir) / slot


def inside_path(path: str, workspace: str) -> str | None:
    """A client's path relative to the workspace, `.` for the workspace itself; None if it escapes.

    The client's path is relative to the workspace, or absolute under `workspace`, where the session
    has it.
    """
    absolute = posixpath.normpath(posixpath.join(workspace, path))
    if absolute == workspace:
        return "."
    if not absolute.startswith(workspace + "/"):
        return None
    return absolute.removeprefix(workspace + "/")


def leads_inside(path: str, target: str) -> bool:
    """Whether the text of a link at `path` leads to a place in the workspace.

    `path` is relative to the workspace. The target must be relative, too.
    """
    if target.startswith("/"):
        return False
    return inside_path(posixpath.join(posixpath.dirname(path), target), WORKSPACE_DIR) is not None


def volume_path(path: str, volumes: Iterable[str], workspace: str) -> str | None:
    """The absolute form of a path that is in one of the volumes; None if it is in none."""
    absolute = f"/{posixpath.normpath(posixpath.join(workspace, path)).lstrip('/')}"
    return None if containing(absolute, volumes) is None else absolute


def outside_path(path: str, workspace: str, *, writes: bool) -> str | None:
    """The absolute form of a path outside the workspace on which file operations may act.

    It applies to levels that allow any command: they may read the image's files and write to /tmp.
    """
    absolute = posixpath.normpath(posixpath.join(workspace, path))
    absolute = f"/{absolute.lstrip('/')}"
    return absolute if outside(absolute, writes=writes) else None


def escape_message(path: str) -> str:
    """The message for a path that escapes the workspace."""
    return f"path escapes workspace: {path[:256]}"
