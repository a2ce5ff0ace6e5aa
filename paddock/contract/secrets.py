"""Secrets that only the proxy of the way out has. No answer has a value."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from paddock.contract.base import WORDS, LevelName, Model, Time, example
from paddock.contract.requests import Body, Query
from paddock.contract.words import OUTSIDE_SECRET, SecretScope

_SECRET: dict[str, Any] = {
    "name": "openai",
    "scope": "key",
    "delivery": "placeholder",
    "session": None,
    "keys": ["ci"],
    "levels": ["build"],
    "hosts": ["api.openai.com"],
    "headers": ["authorization", "x-api-key"],
    "variable": "OPENAI_API_KEY",
    "configured": False,
    "set_by": "ci",
    "created_at": "2026-03-04T09:30:12.482113Z",
    "set_at": "2026-03-05T08:00:00.118205Z",
    "lost": False,
}


class Secret(Model):
    """A secret, without its value."""

    model_config = example(_SECRET)

    name: str
    scope: Annotated[SecretScope, WORDS]
    delivery: Annotated[Literal["placeholder", "variable"], WORDS] = Field(
        description="`placeholder`: the proxy puts it into requests that have `paddock:NAME`, and "
        "no sandbox has it. `variable`: commands get it."
    )
    session: str | None = Field(description="The session whose secret it is.")
    keys: list[str] | None = Field(description="Keys whose sessions may use it; null: all.")
    levels: list[LevelName] | None = Field(
        description="Levels whose sessions may use it; null: all."
    )
    hosts: list[str] = Field(description="The hosts that receive it.")
    headers: list[str] = Field(description="The header fields into which it is put.")
    variable: str | None = Field(
        description="The variable in which commands get the placeholder, or the value."
    )
    configured: bool = Field(description="It is in the operator's configuration.")
    set_by: str | None = Field(description="The name of the key that set it last.")
    created_at: Time
    set_at: Time
    lost: bool = Field(description="Its value can't be read any more: set it again.")


class Secrets(Model):
    """Secrets, without their values."""

    model_config = example({"items": [_SECRET], "next": None})

    items: list[Secret]
    next: None


def _visible(value: str) -> str:
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise ValueError("must have visible ASCII characters only")
    return value


_Texts = Annotated[list[Annotated[str, Field(max_length=255)]], Field(min_length=1, max_length=64)]


class SecretBody(Body):
    """A secret's value, and the requests that it is for."""

    value: Annotated[
        str,
        Field(
            min_length=OUTSIDE_SECRET[0],
            max_length=OUTSIDE_SECRET[1],
            repr=False,
            json_schema_extra={"format": "password", "writeOnly": True},
        ),
        AfterValidator(_visible),
    ]
    hosts: _Texts = Field(description="Exact names of the hosts that receive it.")
    levels: _Texts | None = Field(
        default=None, description="Levels whose sessions may use it; by default all."
    )
    variable: Annotated[str, Field(max_length=128)] | None = Field(
        default=None, description="The variable in which commands get the placeholder."
    )
    headers: _Texts | None = Field(
        default=None,
        description="The header fields into which it is put; by default `authorization` and "
        "`x-api-key`.",
    )


class SecretQuery(Query):
    """Whose secret it is."""

    key: Annotated[str, Field(max_length=64)] | None = Field(
        default=None,
        description="A key's name: for an admin by default the instance, for others their own.",
    )
