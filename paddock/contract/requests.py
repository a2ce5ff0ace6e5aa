"""The base of all requests."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from paddock.contract.fields import KIB, MIB, Positive, sentence
from paddock.contract.first_error import StopsEarly

LINE_DESCRIPTION = "A line that is split at spaces; quotes keep them. No shell reads it."
CWD_DESCRIPTION = (
    "The command's directory: relative to the workspace, or under its path; at levels that allow "
    "any command, anywhere."
)


# For messages and their tools, and for rules.
LARGE_BODY = 2 * MIB
# For words, standard input, programs and packs, even if each character beyond ASCII is a JSON
# escape, which may take three times as many bytes.
LARGEST_BODY = 8 * MIB


class Body(StopsEarly):
    """A request body: strict JSON types, no unknown members."""

    # The limit of the whole body; one of the two others, where members may be longer.
    MOST_BYTES: ClassVar[int] = 256 * KIB

    # The client imports these but parses none, so each is built on first use.
    model_config = ConfigDict(
        extra="forbid", strict=True, hide_input_in_errors=True, defer_build=True
    )


class NoBody(Body):
    """Nothing, or an empty object. Bodies of its subclasses may be missing, too."""


class Query(BaseModel):
    """Query parameters: no unknown ones, each at most once."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True, defer_build=True)


class NoQuery(Query):
    """No parameters."""


def exactly_one(*names: str) -> dict[str, Any]:
    """The schema of an object that has exactly one of these members.

    It is negated twice, because tools display a `oneOf` as several separate objects.
    """
    parts = [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names
    ]
    return {"not": {"not": {"oneOf": parts}}}


def check_one(value: BaseModel, *names: str) -> None:
    """Raises: an error unless exactly one of the members is given."""
    given = [name for name in names if getattr(value, name) is not None]
    if len(given) != 1:
        *most, last = names
        raise sentence(f"exactly one of {', '.join(most)} and {last} must be given")


def check_not_both(value: BaseModel, text: str, data: str) -> None:
    """Raises: an error if both members are given."""
    if getattr(value, text) is not None and getattr(value, data) is not None:
        raise sentence(f"one of {text} and {data} can be given, not both")


def check_names(env: Mapping[str, str], secrets: Mapping[str, str]) -> None:
    """Raises: an error if a variable is in both."""
    for name in env.keys() & secrets.keys():
        raise sentence(f"{name} is in env and in secrets: it can be in one of them")


class IncarnationQuery(Query):
    """The incarnation of the session id; by default the latest."""

    incarnation: Positive | None = None


class SessionFilter(Query):
    """A session's id, and its incarnation."""

    session: Annotated[str, Field(max_length=128)] | None = None
    incarnation: Positive | None = None

    @field_validator("incarnation")
    @classmethod
    def _of_a_session(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("session") is None:
            raise sentence("incarnation is a session's: give session with it")
        return value
