"""Hooks: URLs that receive a signed POST for each event of sessions."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from paddock.contract.base import WORDS, Count, Model, Time, example
from paddock.contract.fields import PageSize, Whole
from paddock.contract.requests import Body, Query
from paddock.contract.words import HOOK_SECRET, HOOK_URL, HookEvent

_HOOK: dict[str, Any] = {
    "id": "hook-0123456789abcdef",
    "url": "https://ci.example.com/paddock",
    "events": ["run.completed", "session.closed"],
    "key": "ci",
    "managed_by": "ci",
    "set_by": "ci",
    "configured": False,
    "created_at": "2026-03-04T09:30:12.482113Z",
    "lost": False,
    "waiting": 0,
    "undelivered": 1,
}
_MESSAGE: dict[str, Any] = {
    "id": "dlv-0123456789abcdef",
    "type": "run.completed",
    "time": "2026-03-04T09:31:02.118205Z",
    "session": {
        "id": "fix-1",
        "incarnation": 1,
        "key": "ci",
        "permission_level": "medium",
        "workspace_root": "/var/lib/paddock/session-workspaces/fix-1",
    },
    "event": {"id": 512, "seq": 40},
    "data": {
        "run": 3,
        "tag": "ok",
        "operations": 12,
        "tokens": 4810,
        "duration_ms": 30120,
        "error": None,
    },
}
_DELIVERY: dict[str, Any] = {
    "id": "dlv-0123456789abcdef",
    "hook": "hook-0123456789abcdef",
    "session": "fix-1",
    "type": "run.completed",
    "status": "undelivered",
    "tries": 15,
    "tried_at": "2026-03-04T12:40:11.902144Z",
    "error": "status 503",
    "message": _MESSAGE,
}


class Hook(Model):
    """A hook, without its secret."""

    model_config = example(_HOOK)

    id: str
    url: str
    events: list[Annotated[HookEvent, WORDS]]
    key: str | None = Field(description="The key whose sessions it is told of; null: all sessions.")
    managed_by: str | None = Field(
        description="The key that sees and removes it, besides admins; null: admins only."
    )
    set_by: str | None = Field(description="The name of the key that added it.")
    configured: bool = Field(description="It is in the operator's configuration.")
    created_at: Time
    lost: bool = Field(description="Its secret can't be read any more: add it again.")
    waiting: Count = Field(description="Messages that are still tried.")
    undelivered: Count = Field(description="Messages that were given up and are kept.")


class Hooks(Model):
    """Hooks, without their secrets."""

    model_config = example({"items": [_HOOK], "next": None})

    items: list[Hook]
    next: None


class AddedHook(Hook):
    """A new hook with its secret, which is not shown again."""

    model_config = example({**_HOOK, "secret": "vT0yq2JmP7dXb4nLr8tYzUoPfGhKsQwe1cRaV5xEi9M"})

    secret: str = Field(description="The key of the messages' signatures.")


class HookDelivery(Model):
    """A message to a hook that is not delivered."""

    model_config = example(_DELIVERY)

    id: str = Field(description="The message's id: the same for every try.")
    hook: str
    session: str
    type: Annotated[HookEvent, WORDS]
    status: Annotated[Literal["waiting", "undelivered"], WORDS] = Field(
        description="`undelivered`: it was given up."
    )
    tries: Count = Field(description="Tries that were begun.")
    tried_at: Time | None = Field(description="When the last try failed.")
    error: str | None = Field(description="Why the last try failed.")
    message: dict[str, Any] = Field(description="What is sent.")


class HookDeliveries(Model):
    """A page of deliveries in the order of the record; `next` is the `cursor` of the next page."""

    model_config = example({"items": [_DELIVERY], "next": None})

    items: list[HookDelivery]
    next: int | None


class HookDeliveryQuery(Query):
    """Which deliveries of a hook."""

    status: Literal["waiting", "undelivered"] | None = Field(
        default=None, description="By default all that are not delivered."
    )
    cursor: Whole | None = None
    limit: PageSize = Field(default=100, description="At most 100 are shown.")


def _visible(value: str) -> str:
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise ValueError("must have visible ASCII characters only")
    return value


class HookBody(Body):
    """A new hook."""

    url: Annotated[str, Field(min_length=1, max_length=HOOK_URL, pattern="^https?://")] = Field(
        description="It gets the POSTs. An operator's key may only use URLs that the operator "
        "permits."
    )
    events: Annotated[list[HookEvent], Field(min_length=1, max_length=16)]
    key: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="A key's name: the hook is told of that key's sessions. By default, an admin's "
        "hook is told of all sessions, another key's of its own.",
    )
    secret: (
        Annotated[
            str,
            Field(
                min_length=HOOK_SECRET[0],
                max_length=HOOK_SECRET[1],
                json_schema_extra={"format": "password", "writeOnly": True},
            ),
            AfterValidator(_visible),
        ]
        | None
    ) = Field(
        default=None,
        repr=False,
        description="The key of the signatures; by default one is made.",
    )
