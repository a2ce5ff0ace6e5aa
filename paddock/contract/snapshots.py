"""Named snapshots: copies of workspaces that a key keeps, and the sessions that begin as them."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from paddock.contract.base import Count, Model, Time, example, model_example
from paddock.contract.cluster import AtNode, Missing
from paddock.contract.fields import Metadata, PageSize
from paddock.contract.requests import Body, Query
from paddock.contract.sessions import CreatedSession
from paddock.contract.words import SNAPSHOT_NAME

MOST_FORKS = 100

_ID = "snap-0c9be27d35864f1a"
_SNAPSHOT: dict[str, Any] = {
    "id": _ID,
    "name": "base",
    "key": "ci",
    "node": None,
    "session_id": "fix-1",
    "status": "ready",
    "created_at": "2026-03-04T09:30:12.482113Z",
    "expires_at": None,
    "size_bytes": 268435456,
    "used_bytes": 52428800,
    "stored_bytes": 53477376,
    "layer_bytes": None,
    "copied_bytes": None,
    "method": "reflink",
    "frozen_ms": 1.9,
    "sha256": "5b2f8c1f0e6d4a39b7c2d1e0f4a5b6c7d8e9f0a1b2c3d4e5f60718293a4b5c6d",
    "metadata": {"commit": "8f3c2a1"},
}

SnapshotName = Annotated[str, StringConstraints(pattern=SNAPSHOT_NAME, max_length=64)]
SnapshotRef = Annotated[str, Field(min_length=1, max_length=64)]


class NamedSnapshot(Model):
    """A copy of a session's workspace."""

    model_config = example(_SNAPSHOT)

    id: str
    name: str
    key: str = Field(description="The key whose sessions can begin as it.")
    node: AtNode = None
    session_id: str = Field(description="The session whose workspace it is a copy of.")
    status: Literal["taking", "ready"]
    created_at: Time
    expires_at: Time | None = Field(description="When it is removed; null: never by itself.")
    size_bytes: Count = Field(description="The size of the workspace.")
    used_bytes: Count = Field(description="What its files need; an estimate while it is taken.")
    stored_bytes: Count = Field(
        description="What it takes on the host's disk, as if it shared nothing with others; an "
        "estimate while it is taken."
    )
    layer_bytes: Count | None = Field(
        description="What of that is the writable layer of root inside; null: it is not in it."
    )
    copied_bytes: Count | None = Field(
        description="What is copied so far; null unless it is being taken."
    )
    method: Literal["reflink", "copy"] | None = Field(
        description="How it was made: its blocks are shared with the workspace, or copied."
    )
    frozen_ms: float | None = Field(
        description="How long what writes to the workspace had to wait."
    )
    sha256: str | None = Field(
        description="The digest of what the record says of it, which the first event of each "
        "session has that began as it."
    )
    metadata: dict[str, str] = Field(description="What its creator keeps with it.")


class NamedSnapshots(Model):
    """A page of snapshots, by key and name; `next` is the `cursor` of the next page."""

    model_config = example({"items": [_SNAPSHOT], "next": None, "missing": []})

    items: list[NamedSnapshot]
    next: str | None
    missing: Missing = []


class SnapshotBody(Body):
    """A name for a snapshot, which its key uses once."""

    name: SnapshotName = Field(description="Not one like an id, `snap-` and 16 hex digits.")
    metadata: Metadata = Field(
        default_factory=dict, description="Texts of yours by name: 16 KiB in all; on record."
    )
    layer: bool = Field(
        default=False,
        description="With what was written over the image, at a level with `root_bytes`. Sessions "
        "begin as it at such levels only, and with the same image.",
    )


class SnapshotChangeBody(Body):
    """Texts that a snapshot is to have, or not any more."""

    metadata: Annotated[
        dict[
            Annotated[str, Field(min_length=1, max_length=256)],
            Annotated[str, Field(max_length=8192)] | None,
        ],
        Field(min_length=1, max_length=64),
    ] = Field(
        description="Texts by name; null removes one. Those that are not named stay; 16 KiB in "
        "all; on record."
    )


class SnapshotKeyQuery(Query):
    """Whose snapshot is meant."""

    key: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="A key's name, for those who see all; by default the caller's.",
    )


class SnapshotListQuery(Query):
    """Which snapshots are listed."""

    key: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="A key's name, for those who see all; by default all."
    )
    session: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="The id of a session; by default any."
    )
    cursor: Annotated[str, Field(max_length=160)] | None = None
    limit: PageSize = 100


class ForkBody(Body):
    """How many sessions are made of one."""

    count: int = Field(ge=1, le=MOST_FORKS)


class Forks(Model):
    """The new sessions with their handles, which are not shown again."""

    model_config = example(
        {
            "sha256": _SNAPSHOT["sha256"],
            "method": "reflink",
            "frozen_ms": 1.9,
            "sessions": [model_example(CreatedSession)],
        }
    )

    sha256: str = Field(description="The digest that the first event of each of them has.")
    method: Literal["reflink", "copy"] = Field(
        description="How the copy of the workspace was made of which they are made."
    )
    frozen_ms: float = Field(description="How long what writes to the workspace had to wait.")
    sessions: list[CreatedSession]
