"""Models of what is kept of owners: for how long, erased, exported."""

from typing import Annotated, Any

from pydantic import Field

from paddock.contract.base import Count, Model, Sha256, example
from paddock.contract.requests import Body

_ERASURE: dict[str, Any] = {
    "owner": "alice",
    "sessions": 12,
    "events": 4180,
    "archives": 3,
    "removed_chains": 0,
    "old_events": 0,
    "volumes": 1,
    "snapshots": 2,
    "memory": 7,
    "secrets": 1,
    "hooks": 0,
    "missing": [],
}
_FILE: dict[str, Any] = {
    "node": None,
    "file": "/var/lib/paddock/exports/alice.tar.gz",
    "bytes": 1834821,
    "sha256": "a3f5c8e1b2d4069788796a5b4c3d2e1f06b1f0e2d3c4b5a69788796a5b4c3d2e",
    "sessions": 12,
}


class ErasureBody(Body):
    """Why it is erased, which is on record."""

    reason: Annotated[str, Field(min_length=1, max_length=512)]


class ErasedOwner(Model):
    """What was erased of an owner."""

    model_config = example(_ERASURE)

    owner: str
    sessions: Count
    events: Count = Field(description="Events that have only the digest of their content now.")
    archives: Count
    removed_chains: Count = Field(
        description="Chains of earlier versions, whose events have no salt: their heads are on "
        "record, and they are removed."
    )
    old_events: Count = Field(
        description="Events of earlier versions in the instance's own chain, which stay as they are"
    )
    volumes: Count
    snapshots: Count
    memory: Count
    secrets: Count
    hooks: Count
    missing: list[str] = Field(
        description="Nodes of a cluster that have not erased their part yet. They do so when they "
        "are back."
    )


class ExportedFile(Model):
    """A file on a server's machine."""

    model_config = example(_FILE)

    node: str | None = Field(description="The node of a cluster; null on one machine.")
    file: str
    bytes: Count
    sha256: Sha256
    sessions: Count


class OwnerExport(Model):
    """Files on the servers' machines with everything that is kept of an owner."""

    model_config = example({"owner": "alice", "files": [_FILE], "missing": []})

    owner: str
    files: list[ExportedFile]
    missing: list[str] = Field(
        description="Nodes of a cluster that have written none: ask again when they are back."
    )


class KeptContent(Model):
    """One kind of content, and how long it is kept."""

    what: str
    where: str
    since: str = Field(description="What the time begins with.")
    seconds: Count | None = Field(description="Null: until what `ends` says.")
    setting: str | None = Field(description="The setting of the time; null: there is none.")
    ends: str = Field(description="What ends it without a time, or before.")
    erased: bool = Field(description="Whether an erasure of its owner takes it away.")


class Retention(Model):
    """All kinds of content."""

    model_config = example(
        {
            "items": [
                {
                    "what": "files of workspaces",
                    "where": "/var/lib/paddock/slots",
                    "since": "the end of the last session",
                    "seconds": 604800,
                    "setting": "PADDOCK_WORKSPACE_RETENTION",
                    "ends": "a purge on request",
                    "erased": True,
                }
            ],
            "next": None,
        }
    )

    items: list[KeptContent]
    next: None
