"""One template as its file has it. Pure."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Template:
    """What its sessions have unless they ask for something else, and how it is prepared.

    The members have the names and units of the API; None means the default. `files` has texts by
    path in the workspace, `setup` the commands that are then run in order. `warm` is how many
    sandboxes wait for its sessions. `sha256` is that of the file.
    """

    name: str
    sha256: str
    description: str = ""
    image: str | None = None
    permission_level: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int | float] = field(default_factory=dict)
    idle_timeout: int | None = None
    wall_timeout: int | None = None
    budget: Mapping[str, int | float] = field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    egress: Mapping[str, Any] | None = None
    policy: str | None = None
    files: Mapping[str, str] = field(default_factory=dict)
    setup: tuple[str, ...] = ()
    warm: int = 0

    def digest(self, image_id: str, level_sha256: str) -> str:
        """The digest of all that goes into its workspace."""
        parts = json.dumps([self.name, self.sha256, image_id, level_sha256])
        return hashlib.sha256(parts.encode()).hexdigest()
