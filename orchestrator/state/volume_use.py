"""How a session uses a volume."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VolumeUse:
    """The name of a volume of the session's owner, and its path in the sandbox."""

    name: str
    path: str
    read_only: bool = False
