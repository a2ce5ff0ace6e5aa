"""Models of the archives of ended sessions' chains."""

from typing import Annotated

from pydantic import Field

from paddock.contract.base import Count, Model, Sha256, Time, example
from paddock.contract.cluster import AtNode, Missing
from paddock.contract.fields import PageSize
from paddock.contract.requests import Body, Query

_ARCHIVED = {
    "session_key": "4f1c0a9be27d3586",
    "session_id": "web-1",
    "owner": "ci",
    "node": None,
    "file": "4f1c0a9be27d3586.tar.gz",
    "sha256": "b1f0e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e16",
    "bytes": 18_204,
    "seq": 212,
    "hash": "a3f5c8e1b2d4069788796a5b4c3d2e1f06b1f0e2d3c4b5a69788796a5b4c3d2e",
    "archived_at": "2026-04-04T09:30:12.482113Z",
}


class Archive(Model):
    """A chain in a file of the archive; `seq` and `hash` are those of its last event."""

    model_config = example(_ARCHIVED)

    session_key: str
    session_id: str
    owner: str
    node: AtNode = None
    file: str = Field(description="The file's name in the archive directory.")
    sha256: Sha256 = Field(description="Of the file.")
    bytes: Count
    seq: Count
    hash: Sha256
    archived_at: Time


class Archives(Model):
    """Archived chains; `next` is the `after` of the next page."""

    model_config = example({"items": [_ARCHIVED], "next": None, "missing": []})

    items: list[Archive]
    next: str | None
    missing: Missing = []


class ArchiveRun(Model):
    """The archived chains, and by session the reasons for those refused; `more`: call again."""

    model_config = example({"items": [_ARCHIVED], "refused": {}, "more": False, "missing": []})

    items: list[Archive]
    refused: dict[str, str] = Field(description="Reasons by session: its id, `/`, its incarnation.")
    more: bool
    missing: Missing = []


class ArchiveBody(Body):
    """Selects the chains of sessions that ended longer ago."""

    older_than: Annotated[int, Field(ge=60, le=3_153_600_000)] = Field(
        default=7 * 86_400, description="Seconds."
    )


class ArchivesQuery(Query):
    """`after` is the `next` of the previous page."""

    after: Annotated[str, Field(max_length=64)] = ""
    limit: PageSize = 100
