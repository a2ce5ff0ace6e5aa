"""Settings of how many sandboxes there are and what they leave free."""

from typing import Annotated

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from orchestrator.settings.value_types import OrJson

_MIB = 1024 * 1024
# The kernel uses the last uid for "no such user".
_MAX_UID = 2**32 - 2
# Outside the ranges that distributions assign to users and subordinate uids.
FIRST_UID = 1_900_000_000


class CapacitySettings(BaseModel):
    """Settings of how many sandboxes there are and what they leave free."""

    max_active: int = Field(
        default=32,
        ge=1,
        le=10_000,
        description="The highest number of sandboxes. Above it, the idle session that was used "
        "least recently is suspended.",
    )
    max_creating: int = Field(
        default=8,
        ge=1,
        le=64,
        description="Sandboxes that are started at the same time; others wait for a slot.",
    )
    key_max_creating: int = Field(default=4, ge=1, le=64, description="The same for one key.")
    warm_sandboxes: int = Field(
        default=0,
        ge=0,
        le=1000,
        description="The highest number of sandboxes that wait, started, for sessions. Recent "
        "demand decides which ones wait, and there are none without it, except for `warm` of "
        "templates. 0: none.",
    )
    warm_least: Annotated[dict[str, int], OrJson] = Field(
        default={},
        description="How many of them wait at a level even without demand, with the default image, "
        "as `{level: number}`.",
    )
    warm_age: int = Field(
        default=3600,
        ge=1,
        description="How long a sandbox waits for a session before it is replaced.",
    )
    min_free_memory_bytes: int = Field(
        default=512 * _MIB,
        ge=0,
        description="With less memory available on the host, no sandbox is started.",
    )
    min_free_disk_bytes: int = Field(
        default=1024 * _MIB,
        ge=0,
        description="With less space on the state directory's disk, nothing new is started: no "
        "sandbox, command, terminal or file operation. With less than a quarter of it, commands "
        "are ended.",
    )
    uid_base: int | None = Field(
        default=None,
        ge=1000,
        le=_MAX_UID,
        description="The first uid for workspaces; each workspace has its own. Unset: a range from "
        "1900000000 on that no other instance on this machine uses.",
    )
    uid_count: int = Field(default=65_536, ge=1, description="The number of uids for workspaces.")

    @field_validator("warm_least")
    @classmethod
    def _check_warm(cls, value: dict[str, int], info: ValidationInfo) -> dict[str, int]:
        if any(number < 0 for number in value.values()):
            raise ValueError("must not have negative numbers")
        if sum(value.values()) > info.data.get("warm_sandboxes", 0):
            raise ValueError("may not be more than warm_sandboxes together")
        return value

    @field_validator("uid_count")
    @classmethod
    def _check_uids(cls, value: int, info: ValidationInfo) -> int:
        if (info.data.get("uid_base") or FIRST_UID) + value - 1 > _MAX_UID:
            raise ValueError(f"the last uid would be over {_MAX_UID}")
        return value
