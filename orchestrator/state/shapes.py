"""What is fixed when a sandbox's container is created. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from orchestrator.ground.config_error import ConfigError
from orchestrator.rules.policy.levels import ROOT, Level, SessionLimits, effective_limits


@dataclass(frozen=True, slots=True)
class Shape:
    """Sandboxes of equal shapes differ only in their session. They have their level's limits.

    An image's name may get another id, and a level's file another digest: the shape then differs.
    `files` is the id of the snapshot as which all their sessions begin; they may have `limits` of
    their own, in which the workspace's size is the level's.
    """

    image: str
    image_id: str
    level_name: str
    level_sha256: str
    level: Level = field(compare=False, repr=False)
    limits: SessionLimits
    files: str | None = None

    @classmethod
    def of(cls, image: str, image_id: str, level: Level) -> Self:
        """The shape of a session's sandbox."""
        return cls(image, image_id, level.name, level.sha256, level, usual_limits(level))

    def beginning_as(self, files: str, limits: SessionLimits) -> Self:
        """The shape for sessions that begin as that snapshot, with these limits."""
        size = self.limits.workspace_bytes
        return replace(self, files=files, limits=replace(limits, workspace_bytes=size))

    def renewed(self, image_id: str, level: Level) -> Self:
        """The shape of the image and the level as they are now."""
        return replace(
            self, image_id=image_id, level_name=level.name, level_sha256=level.sha256, level=level
        )


def usual_limits(level: Level) -> SessionLimits:
    """The limits of a session that requests none of its own."""
    return effective_limits(level, {})


def has_usual_limits(level: Level, limits: SessionLimits) -> bool:
    """Whether they are the level's own; the workspace's size is set when the session is known."""
    usual = usual_limits(level)
    return replace(limits, workspace_bytes=usual.workspace_bytes) == usual


def can_wait(level: Level) -> bool:
    """Whether sandboxes of that level can be started before their session is known.

    The rates of a disk are set on the workspace's device, which is not known then. Mounts of the
    operator's list are checked for the session that uses them. Other runtimes than the engine's
    default might not show what is mounted late. The writable layer of root inside belongs to the
    session's uid.
    """
    usual = level.runtime is None and level.user != ROOT
    return usual and not level.rates.disk and not level.mounts


def cold_levels(names: Iterable[str], levels: Mapping[str, Level]) -> list[str]:
    """The levels of `warm_least` whose sandboxes can't wait. Raises: ConfigError if unknown."""
    for name in names:
        if name not in levels:
            raise ConfigError(f"warm_least: there is no level {name}")
    return [name for name in names if not can_wait(levels[name])]
