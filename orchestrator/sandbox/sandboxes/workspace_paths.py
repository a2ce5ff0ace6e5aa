"""Where in a sandbox a workspace may be, and what a level's paths in it mean there. Pure."""

import posixpath
from collections.abc import Iterable

from orchestrator.ground.errors import ValidationError
from orchestrator.sandbox.volumes.volume_paths import overlap, refusal
from sandbox_agent.decide.protocol import WORKSPACE_DIR

FIELD = "workspace_path"
# Agents that expect to be root keep their tools in its home. Nothing that runs as root in a sandbox
# has a home or reads one: the interpreter of the agent is isolated.
_ROOTS_HOME = "/root"


def check_path(path: str) -> None:
    """Checks a client's path by its text. Raises: ValidationError."""
    why = None if path in (WORKSPACE_DIR, _ROOTS_HOME) else refusal(path)
    if why is not None:
        raise ValidationError(f"{FIELD} {why}", field=FIELD)


def check_place(path: str, taken: Iterable[str]) -> None:
    """Checks a path beside those of other mounts and of the level. Raises: ValidationError.

    What a level names below /workspace means the workspace, so it never overlaps with another path.
    """
    if path == WORKSPACE_DIR:
        return
    other = next((place for place in taken if not _usual(place) and overlap(path, place)), None)
    if other is not None:
        raise ValidationError(f"{FIELD} overlaps with {other}", field=FIELD)


def beside(path: str, volumes: Iterable[str]) -> tuple[str, ...]:
    """The volumes of an image without the one in whose place the workspace is.

    Raises: ValidationError if the workspace overlaps with another one.
    """
    others = tuple(volume for volume in volumes if volume != path)
    check_place(path, others)
    return others


def moved(path: str, workspace: str) -> str:
    """A path of a level's file, which has the workspace at /workspace, in a session's sandbox."""
    if workspace == WORKSPACE_DIR or not _usual(path):
        return path
    return workspace + posixpath.normpath(path).removeprefix(WORKSPACE_DIR)


def moved_value(value: str, workspace: str) -> str:
    """The value of a level's variable: a path, or several, with colons between them."""
    return ":".join(moved(path, workspace) for path in value.split(":"))


def _usual(path: str) -> bool:
    plain = posixpath.normpath(path)  # leaves two slashes at the beginning, as in a URL
    return plain == WORKSPACE_DIR or plain.startswith(f"{WORKSPACE_DIR}/")
