"""Break-glass access of an admin to the content of another key's session."""

from typing import Annotated

from pydantic import Field

from paddock.contract.base import Model, Time, example
from paddock.contract.fields import MaxBytes
from paddock.contract.requests import Body

DEFAULT_SECONDS = 3600
MOST_SECONDS = 8 * 3600

GLASS_ACCESS = {
    "id": "acc-5c0e1b7a93d2f468",
    "key": "admin",
    "reason": "the build hangs: incident 4711",
    "opened_at": "2026-03-04T09:30:12.482113Z",
    "until": "2026-03-04T10:30:12.482113Z",
}


class GlassBody(Body):
    """The body of `POST …/break-glass`."""

    reason: Annotated[str, Field(min_length=1, pattern=r"\S"), MaxBytes(1024)] = Field(
        description="Why, for the record and for the session's owner."
    )
    seconds: int = Field(
        default=DEFAULT_SECONDS, ge=1, le=MOST_SECONDS, description="How long it lasts from now."
    )


class GlassAccess(Model):
    """One admin's access to the content of a session."""

    model_config = example(GLASS_ACCESS)

    id: str = Field(description="What the admin does by it has this in `args.break_glass`.")
    key: str = Field(description="The name of the admin's key.")
    reason: str
    opened_at: Time
    until: Time
