"""Where in a sandbox a volume may be: decided by the text of its path. Pure."""

import posixpath
from collections.abc import Iterable, Sequence

from orchestrator.ground.errors import ValidationError
from orchestrator.state.volume_use import VolumeUse

_FIELD = "volumes"
_MOST_BYTES = 256
# The image has its programs, settings and data there, among them those of the sandbox's agent; and
# the kernel and the control plane have their files there.
_SYSTEM = frozenset(
    {
        *("bin", "boot", "dev", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "lost+found"),
        *("nix", "opt", "proc", "root", "run", "sbin", "snap", "sys", "tmp", "usr", "var"),
        "workspace",
    }
)


def check_uses(uses: Sequence[VolumeUse], taken: Iterable[str] = ()) -> None:
    """Checks the volumes of one session; `taken` are paths of other mounts and of the level.

    Raises: ValidationError.
    """
    names = [use.name for use in uses]
    for name in names:
        if names.count(name) > 1:
            raise ValidationError(f"volumes: {name} is named twice", field=_FIELD)
    places = list(taken)
    for use in uses:
        why = refusal(use.path)
        if why is not None:
            raise ValidationError(f"volumes: the path of {use.name} {why}", field=_FIELD)
        other = next((place for place in places if overlap(use.path, place)), None)
        if other is not None:
            raise ValidationError(
                f"volumes: the path of {use.name} overlaps with {other}", field=_FIELD
            )
        places.append(use.path)


def refusal(path: str) -> str | None:
    """Why nothing of a session may be mounted at that path; None if it may."""
    if not path.startswith("/") or path.startswith("//") or path == "/":
        return "must be absolute, and not /"
    if posixpath.normpath(path) != path:
        return "must have no `.`, no `..`, and no unnecessary slash"
    if not path.isprintable() or " " in path or not path.isascii():
        return "must have printable ASCII characters only, and no space"
    if len(path) > _MOST_BYTES:
        return f"must have at most {_MOST_BYTES} characters"
    first = path.split("/")[1]
    if first in _SYSTEM or first.startswith("."):
        return f"must not be in /{first}, which belongs to the system"
    return None


def overlap(one: str, other: str) -> bool:
    """Whether one of two absolute paths is the other, or is in it."""
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
