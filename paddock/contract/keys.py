"""API keys: who may call, and how much. Only the answer to a creation has a key itself."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.fields import Moment
from paddock.contract.requests import Body
from paddock.contract.words import MAX_WALL_SECONDS

_KEY: dict[str, Any] = {
    "name": "ci",
    "role": "operator",
    "owner": None,
    "max_sessions": 8,
    "max_cpus": 4.0,
    "max_memory_bytes": None,
    "max_workspaces": None,
    "max_workspace_bytes": None,
    "requests_per_second": 50.0,
    "handle_requests_per_second": None,
    "max_audit_bytes": None,
    "max_egress_bytes_per_day": None,
    "max_level": "medium",
    "images": None,
    "tools": None,
    "max_idle_timeout": 3600,
    "max_wall_timeout": None,
    "scopes": ["exec", "sessions:create"],
    "last_used_at": "2029-12-24T08:15:00.000000Z",
    "old_until": None,
    "expires_at": "2030-01-31T00:00:00.000000Z",
    "expired": False,
    "current": False,
    "used": {"sessions": 2, "cpus": 1.5, "memory_bytes": 1342177280},
}

Role = Literal["admin", "operator", "viewer", "metrics"]


class KeyUse(Model):
    """What the key's live sessions hold of its limits."""

    sessions: Count
    cpus: float
    memory_bytes: Count


class Key(Model):
    """A key without itself. A limit that is null is the instance's, if that has one."""

    model_config = example(_KEY)

    name: str
    role: Annotated[Role, WORDS]
    owner: str | None = Field(
        description="The key whose sessions a viewer reads; null for a viewer: all."
    )
    max_sessions: Count | None = Field(description="Live sessions.")
    max_cpus: float | None = Field(description="Cores of its live sessions together.")
    max_memory_bytes: Count | None = Field(description="Memory of its live sessions together.")
    max_workspaces: Count | None = Field(description="Workspaces, kept ones included.")
    max_workspace_bytes: Count | None = Field(description="Size of its workspaces together.")
    requests_per_second: float | None
    handle_requests_per_second: float | None = Field(
        description="Requests per second with each handle of its sessions."
    )
    max_audit_bytes: Count | None = Field(description="Size of its sessions' audit records.")
    max_egress_bytes_per_day: Count | None = Field(
        description="Bytes of its sessions to and from the outside on one day, in UTC."
    )
    max_level: str | None = Field(description="The highest level of its sessions.")
    images: list[str] | None = Field(description="The images that it may use; null: any.")
    tools: list[str] | None = Field(description="The tools that it may open; null: any.")
    max_idle_timeout: int | None = Field(
        description="The longest idle time-out of its sessions, in seconds."
    )
    max_wall_timeout: int | None = Field(
        description="The longest wall time-out of its sessions, in seconds."
    )
    scopes: list[str] | None = Field(
        description="What it may do of what its role may; null: all of it."
    )
    last_used_at: Time | None = Field(
        description="Its last use on this node, to the minute after a restart; null: never."
    )
    old_until: Time | None = Field(
        description="Until when the secret before the last rotation is valid, if it is."
    )
    expires_at: Time | None
    expired: bool
    current: bool = Field(description="It is the key of this request.")
    used: KeyUse


class Keys(Model):
    """The keys in force, by name."""

    model_config = example(
        {"items": [_KEY], "next": None, "file": "/var/lib/paddock/keys.toml", "obstacle": None}
    )

    items: list[Key]
    next: None
    file: str = Field(description="The keys file, which has every key but the admin key.")
    obstacle: str | None = Field(
        description="Why keys can't be created or revoked here, and what to do instead."
    )


class CreatedKey(Key):
    """A new key, which is not shown again."""

    model_config = example({**_KEY, "key": "pdk_3q2-7wEv1dCk0aXb5nLr8tYzUoPfGhJmQsVxWcBeA4k"})

    key: str = Field(description="The key itself. Only its hash is stored.")


_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Seconds = Annotated[int, Field(ge=1, lt=2**63)]
_Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Names = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=256)]], Field(min_length=1, max_length=64)
]


class RotationBody(Body):
    """A rotation. During the overlap, the old secret is valid beside the new one."""

    overlap_seconds: Annotated[int, Field(ge=0, le=90 * 86_400)] = Field(
        default=86_400, description="0 ends all earlier secrets at once."
    )


class KeyBody(Body):
    """A new key. Quotas, level, images, tools and time-outs are for operators only."""

    name: Annotated[str, Field(max_length=64)] = Field(
        description="Lower-case letters, digits, `.`, `_` and `-`."
    )
    role: Role = "operator"
    owner: Annotated[str, Field(max_length=64)] | None = Field(
        default=None, description="For a viewer: the key whose sessions it reads."
    )
    scope: Literal["all"] | None = Field(
        default=None, description="For a viewer without an owner: it reads all sessions."
    )
    max_sessions: _Count | None = None
    max_cpus: _Amount | None = None
    max_memory_bytes: _Count | None = None
    max_workspaces: _Count | None = None
    max_workspace_bytes: _Count | None = None
    requests_per_second: _Rate | None = None
    handle_requests_per_second: _Rate | None = None
    max_audit_bytes: _Count | None = None
    max_egress_bytes_per_day: _Count | None = None
    max_level: Annotated[str, Field(max_length=32)] | None = None
    images: _Names | None = None
    tools: _Names | None = None
    max_idle_timeout: _Seconds | None = None
    max_wall_timeout: Annotated[_Seconds, Field(le=MAX_WALL_SECONDS)] | None = None
    scopes: _Names | None = Field(
        default=None, description="What it may do of what its role may; by default all of it."
    )
    expires_at: Moment | None = Field(default=None, description="By default never.")
