"""What is fixed when a sandbox's container is created. Pure."""

from dataclasses import dataclass, field, fields
from typing import Self

from orchestrator.engine.base import Limits
from orchestrator.policy.levels import Level, SessionLimits, effective_limits


@dataclass(frozen=True, slots=True)
class Shape:
    """Sandboxes of equal shapes differ only in their session.

    An image's name may get another id, and a level's file another digest: the shape then differs.
    """

    image: str
    image_id: str
    level_name: str
    level_sha256: str
    limits: Limits  # the workspace's size is set when the session is known
    level: Level = field(compare=False, repr=False)

    @classmethod
    def of(cls, image: str, image_id: str, level: Level, limits: SessionLimits) -> Self:
        """The shape of a session's sandbox."""
        names = [member.name for member in fields(Limits)]
        container = Limits(**{name: getattr(limits, name) for name in names})
        return cls(image, image_id, level.name, level.sha256, container, level)

    def at(self, image_id: str, level: Level) -> Self | None:
        """The shape with the present image and level; None if that level has no such sandboxes.

        Limits of a session's own are kept only while the level is the same.
        """
        if level.sha256 == self.level_sha256:
            return type(self).of(self.image, image_id, level, self.session_limits())
        own = self.limits != type(self).of("", "", self.level, usual_limits(self.level)).limits
        if own or not can_wait(level):
            return None
        return type(self).of(self.image, image_id, level, usual_limits(level))

    def session_limits(self) -> SessionLimits:
        """The limits, with the level's size of a workspace."""
        values = {member.name: getattr(self.limits, member.name) for member in fields(Limits)}
        return SessionLimits(**values, workspace_bytes=self.level.limits.workspace_bytes)


def usual_limits(level: Level) -> SessionLimits:
    """The limits of a session that requests none of its own."""
    return effective_limits(level, {})


def can_wait(level: Level) -> bool:
    """Whether sandboxes of that level can be started before their session is known.

    The rates of a disk are set on the workspace's device, which is not known then. Mounts of the
    operator's list are checked for the session that uses them.
    """
    return not level.rates.disk and not level.mounts
