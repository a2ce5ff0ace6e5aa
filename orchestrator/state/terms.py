"""What a client may ask of a session, and what is stored of it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from orchestrator.state.volume_use import VolumeUse
from paddock.contract.words import IdleAction

DEFAULT_ROLE = "agent"
# The record says how a session was made, but not how long it may last.
_UNRECORDED = {"limits", "idle_timeout", "idle_action", "wall_timeout"}
# What no request has.
_FOUND = "missing_image"


@dataclass(frozen=True, slots=True)
class Terms:
    """A session's terms, by the names of the API. Time-outs are in seconds.

    In a request, an empty `image` and an `idle_timeout` of 0 mean the default. `limits` are lower
    than the level's. An `idle_action` of None is the level's, a `wall_timeout` of None no limit.
    `metadata` are the client's own texts by name.
    `mounts` are names on the operator's list, in addition to the level's, `volumes` its owner's.
    `workspace_path` is where the workspace is in the sandbox; None: where it usually is.
    `recovery` is `snapshot` if another node takes it over when its own is lost.
    `role` is the role of its agent in policies, `tools` are those that it may open; None: any that
    its level permits. `work_id`, `policy_resolved_ref` and `episode_id` are the host's names.

    `missing_image` is never in a request: it is the default image of the session's level, if that
    was not there when the session was created, which therefore has `image`.
    """

    image: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    env: dict[str, str] = field(default_factory=dict)
    limits: dict[str, int | float] = field(default_factory=dict)
    idle_timeout: int = 0
    idle_action: IdleAction | None = None
    wall_timeout: int | None = None
    mounts: tuple[str, ...] = ()
    volumes: tuple[VolumeUse, ...] = ()
    workspace_path: str | None = None
    role: str = DEFAULT_ROLE
    tools: tuple[str, ...] | None = None
    work_id: str | None = None
    policy_resolved_ref: str | None = None
    episode_id: str | None = None
    recovery: str | None = None
    missing_image: str | None = None

    @property
    def volume_paths(self) -> tuple[str, ...]:
        """Where its volumes are in the sandbox."""
        return tuple(use.path for use in self.volumes)

    @property
    def written_volumes(self) -> tuple[str, ...]:
        """Where those are that it may write to."""
        return tuple(use.path for use in self.volumes if not use.read_only)

    @classmethod
    def names(cls) -> set[str]:
        """The names of all terms."""
        return {each.name for each in fields(cls)}

    @classmethod
    def restored(cls, members: Mapping[str, Any]) -> "Terms":
        """From what `stored` gives, or from a valid request; a term that is missing is its default.

        Raises: TypeError for a member that is no term.
        """
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in members.items()
        }
        if values.get("idle_action") is not None:
            values["idle_action"] = IdleAction(values["idle_action"])
        values["volumes"] = tuple(VolumeUse(**each) for each in values.get("volumes", ()))
        return cls(**values)

    def stored(self) -> dict[str, Any]:
        """The terms as JSON."""
        values = ((each.name, getattr(self, each.name)) for each in fields(self))
        members = {name: list(each) if isinstance(each, tuple) else each for name, each in values}
        return members | {"volumes": [asdict(use) for use in self.volumes]}

    def column(self) -> str:
        """The terms as the table of sessions has them."""
        return json.dumps(self.stored())

    def given(self) -> dict[str, Any]:
        """The terms that are not left to a default, as a request has them."""
        given = self.stored().items()
        return {name: value for name, value in given if value is not None and name != _FOUND}

    def recorded(self) -> dict[str, Any]:
        """The terms for the event of the creation, which has only the names of variables."""
        kept = {name: value for name, value in self.given().items() if name not in _UNRECORDED}
        missing = {} if self.missing_image is None else {_FOUND: self.missing_image}
        return kept | missing | {"env": sorted(self.env)}
