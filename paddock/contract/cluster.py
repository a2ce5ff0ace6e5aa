"""Models of a cluster: its nodes, positions over all of them, and where a session is put."""

import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

from paddock.contract.base import WORDS, Count, Model, example
from paddock.contract.fields import Reference
from paddock.contract.requests import Body

# A position over several nodes; one machine has numbers.
MOST_POSITION = 32 * 1024
POSITION_PATTERN = r"^[A-Za-z0-9_-]{1,32768}$"
_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
KEYS_PATTERN = r"^[0-9a-f]{16}(,[0-9a-f]{16}){0,999}$"
_KEYS = re.compile(KEYS_PATTERN.strip("^$"), re.ASCII)
_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$"
_TEXT = {"type": "string", "pattern": POSITION_PATTERN, "maxLength": MOST_POSITION}

_AMOUNTS = {"cpus": 16.0, "memory_bytes": 68719476736, "sandboxes": 200}
_NODE: dict[str, Any] = {
    "name": "node-1",
    "state": "ready",
    "alive": True,
    "silent_seconds": 1.2,
    "capacity": _AMOUNTS,
    "used": {"cpus": 4.5, "memory_bytes": 9663676416, "sandboxes": 18},
    "labels": {"zone": "a"},
    "levels": ["low", "medium", "high"],
    "images": ["paddock/sandbox:latest"],
    "version": "0.1.0",
}


def _position(least: int) -> Any:
    def number(value: Any) -> int:
        if not isinstance(value, str) or not _NUMBER.fullmatch(value) or int(value) < least:
            raise ValueError("must be a whole number")
        return int(value)

    schema = {"anyOf": [{"type": "integer", "minimum": least, "maximum": 10**18 - 1}, _TEXT]}
    return Annotated[int, BeforeValidator(number), WithJsonSchema(schema)]


def _session_keys(value: Any) -> tuple[str, ...]:
    if not isinstance(value, str) or not _KEYS.fullmatch(value):
        raise ValueError("must be 1 to 1000 times 16 hexadecimal digits, split by commas")
    return tuple(value.split(","))


# What one machine takes: a number. The schema also has the text that a cluster gives and takes.
WholePosition = _position(0)
PositivePosition = _position(1)
SessionKeys = Annotated[
    tuple[str, ...],
    BeforeValidator(_session_keys),
    WithJsonSchema({"type": "string", "pattern": KEYS_PATTERN, "maxLength": 17 * 1000 - 1}),
]
# As a parameter of a cluster, which checks the text itself.
ClusterPosition = Annotated[str, Field(min_length=1, max_length=MOST_POSITION)]
Missing = Annotated[
    list[str],
    Field(
        description="The nodes of the cluster that did not answer: what they have is not here. "
        "One machine has none."
    ),
]
AtNode = Annotated[str | None, Field(description="The node where it is; null without a cluster.")]


class NodeAmounts(Model):
    """Cores, bytes of memory and sandboxes."""

    cpus: float
    memory_bytes: Count
    sandboxes: Count


class DrainedSession(Model):
    """A session that stays on a node that is drained."""

    id: str
    reason: str


class Drained(Model):
    """What has become of a node's sessions."""

    moved: Count = Field(description="How many have moved to other nodes.")
    ended: Count = Field(description="How many were ended, because they could not be moved.")
    stayed: list[DrainedSession] = Field(description="The others, with the reason for each.")


class Node(Model):
    """A machine of the cluster."""

    model_config = example(_NODE)

    name: str
    state: Annotated[Literal["ready", "draining", "gone"], WORDS] = Field(
        description="`draining`: it gets no new sessions; `gone`: it was given up."
    )
    alive: bool = Field(description="Whether its lease has not ended.")
    silent_seconds: float = Field(description="How long ago it has renewed its lease.")
    capacity: NodeAmounts = Field(description="What it can give to sandboxes.")
    used: NodeAmounts = Field(description="What it has given to them.")
    labels: dict[str, str] = Field(description="By which sessions may choose it.")
    levels: list[str] = Field(description="The levels that it can enforce.")
    images: list[str] = Field(description="The images that it has.")
    version: str = Field(description="Its program's version.")
    drained: Drained | None = Field(
        default=None, description="What has become of its sessions, if they were to be moved."
    )


class DrainBody(Body):
    """What happens to the sessions of a node that is drained."""

    move: bool = Field(
        default=False, description="Whether they move to other nodes; otherwise they stay."
    )
    wait: Annotated[int, Field(ge=0, le=86_400)] = Field(
        default=0, description="How many seconds busy sessions are waited for."
    )
    busy: Annotated[Literal["stay", "end"], WORDS] = Field(
        default="stay", description="What happens then to sessions that have not moved."
    )


class Nodes(Model):
    """The nodes of the cluster by name; none, if the server is one machine."""

    model_config = example({"items": [_NODE], "next": None})

    items: list[Node]
    next: None


class SessionMoveBody(Body):
    """Where a session is moved."""

    node: Annotated[str, Field(min_length=1, max_length=63)] = Field(
        description="The name of the node on which the session goes on."
    )


class Moved(Model):
    """A session that was moved, and is active on its new node."""

    model_config = example({"id": "sess-1f0c", "node": "node-2"})

    id: str
    node: str = Field(description="The name of its node.")


class NodeNotice(Model):
    """A node has gone away, or is back; the stream goes on with the others."""

    model_config = example({"node": "node-1"})

    node: str


_Label = Annotated[str, StringConstraints(pattern=_LABEL, max_length=63)]


class PlacementBody(Body):
    """Where a session is put in a cluster."""

    labels: Annotated[dict[_Label, _Label], Field(max_length=32)] = Field(
        default_factory=dict,
        description="Labels that its node has; one machine without a cluster has none.",
    )
    near: Reference | None = Field(
        default=None, description="The id of a session on whose node it is put."
    )
