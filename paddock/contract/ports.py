"""Ports: programs in a sandbox that clients may reach."""

from typing import Annotated, Any

from pydantic import Field

from paddock.contract.base import Count, Model, Time, example
from paddock.contract.requests import Body

DEFAULT_PORT_SECONDS = 3600
MOST_PORT_SECONDS = 7 * 86_400

_PORT: dict[str, Any] = {
    "port": 8000,
    "url": "http://127.0.0.1:8701/s/sess-4f1c0a9be27d3586/8000/",
    "host_url": "http://8000-sess-4f1c0a9be27d3586.localhost:8701/",
    "opened_at": "2026-03-04T09:30:12.482113Z",
    "opened_by": "ci",
    "expires_at": "2026-03-04T10:30:12.000000Z",
    "requests": 12,
}
_SIGNED = "~1772620212.YWxsIHRoZSB3YXkgdG8gdGhlIHBvcnQgYW5kIGJhY2s/"
_LINKS = {"link": _PORT["url"] + _SIGNED, "host_link": _PORT["host_url"] + _SIGNED}

PortNumber = Annotated[int, Field(ge=1, le=65535)]


class Port(Model):
    """An open port of a session."""

    model_config = example(_PORT)

    port: PortNumber
    url: str | None = Field(
        description="Where it is served, to a key or the session's handle; null if this control "
        "plane serves no ports now."
    )
    host_url: str | None = Field(
        description="The same at a host name of its own, where its pages have an origin and "
        "storage; null if the operator has set no domain for it, or if the session's id has a "
        "dot or more than about 55 characters."
    )
    opened_at: Time
    opened_by: str = Field(description="The name of the key that opened it last.")
    expires_at: Time
    requests: Count = Field(description="Requests since the control plane started.")


class OpenedPort(Port):
    """An open port, and links to it for those who have no key."""

    model_config = example({**_PORT, **_LINKS})

    link: str = Field(description="Holds until `expires_at`, unless the port is closed before.")
    host_link: str | None = Field(
        description="The same at `host_url`, for browsers: they keep a cookie of that host."
    )


class Ports(Model):
    """The open ports of a session."""

    model_config = example({"items": [_PORT], "next": None})

    items: list[Port]
    next: None


class PortBody(Body):
    """The port to open, and for how long."""

    port: PortNumber
    seconds: Annotated[int, Field(ge=1, le=MOST_PORT_SECONDS)] = DEFAULT_PORT_SECONDS
