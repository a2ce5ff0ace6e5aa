"""Settings of how long sessions live."""

from pydantic import BaseModel, Field, ValidationInfo, field_validator

from paddock.contract.words import MAX_WALL_SECONDS


class LifetimeSettings(BaseModel):
    """Settings of how long sessions live."""

    terminated_ttl: int = Field(
        default=300, ge=0, description="How long an ended session remains visible."
    )
    idle_timeout: int = Field(
        default=1800,
        ge=1,
        description="How long a session may be idle before it is ended or suspended, if it does "
        "not set this.",
    )
    idle_timeout_max: int = Field(
        default=86_400, ge=1, description="The highest idle time-out that a session may set."
    )
    wall_timeout: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WALL_SECONDS,
        description="How long a session may exist, idle or not, if it does not set this. Unset: "
        "`PADDOCK_WALL_TIMEOUT_MAX`.",
    )
    wall_timeout_max: int | None = Field(
        default=None,
        ge=1,
        le=MAX_WALL_SECONDS,
        description="The highest lifetime that a session may set. Unset: no limit.",
    )

    @field_validator("idle_timeout_max")
    @classmethod
    def _check_idle(cls, value: int, info: ValidationInfo) -> int:
        if value < info.data.get("idle_timeout", 0):
            raise ValueError("may not be below idle_timeout")
        return value

    @field_validator("wall_timeout_max")
    @classmethod
    def _check_wall(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and value < (info.data.get("wall_timeout") or 0):
            raise ValueError("may not be below wall_timeout")
        return value
