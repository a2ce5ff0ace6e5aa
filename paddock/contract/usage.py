"""Models of what sessions and the host use, as a history."""

from typing import Annotated, Any

from pydantic import Field

from paddock.contract.base import Count, Model, Time, example
from paddock.contract.cluster import Missing
from paddock.contract.fields import Whole
from paddock.contract.inspection import DiskUsage
from paddock.contract.requests import Query

_HOST: dict[str, Any] = {
    "cpus": 8,
    "memory_bytes": 33554432000,
    "disk_bytes": 107374182400,
    "cpu_percent": [12.5, 14.0],
    "memory_used": [8388608000, 8392802304],
    "disk_used": [53687091200, 53687091200],
}
_SESSION: dict[str, Any] = {
    "id": "sess-4f1c0a9be27d3586",
    "incarnation": 1,
    "cpu_percent": [0.0, 50.1],
    "memory_bytes": [9437184, 9502720],
    "pids": 3,
    "disk": {"used_bytes": 1052672, "limit_bytes": 253886464},
}


class HostUsage(Model):
    """The host's size, and what was used of it in each sample, the latest last."""

    cpus: Count
    memory_bytes: Count
    disk_bytes: Count = Field(description="Size of the state directory's file system.")
    cpu_percent: list[float] = Field(
        description="Of all cores, since the sample before; in the first one since the boot."
    )
    memory_used: list[Count]
    disk_used: list[Count]


class SessionUsage(Model):
    """What a session used in each sample, the latest last.

    A session that is younger than the first sample has fewer. Null: it had no sandbox, or the host
    did not show it.
    """

    id: str
    incarnation: int = Field(ge=1)
    cpu_percent: list[float | None] = Field(description="Of one core, since the sample before.")
    memory_bytes: list[Count | None]
    pids: Count | None = Field(description="Processes in the latest sample.")
    disk: DiskUsage | None = Field(description="Null if the workspace's size is not enforced.")


class Usages(Model):
    """What live sessions and the host used in the latest samples.

    All callers get the same samples, which are taken every `interval` seconds.
    """

    model_config = example(
        {
            "round": 128,
            "sampled_at": "2026-03-04T09:30:12.482113Z",
            "interval": 10.0,
            "host": _HOST,
            "items": [_SESSION],
            "next": None,
            "missing": [],
        }
    )

    round: Count = Field(description="The number of the latest sample; 0 if there is none yet.")
    sampled_at: Time | None = Field(
        default=None, description="When the latest sample was taken; null if there is none yet."
    )
    interval: float = Field(description="Seconds between samples.")
    host: HostUsage | None = Field(
        description="Null for callers that see only some sessions, and before the first sample."
    )
    items: list[SessionUsage]
    next: None
    missing: Missing = []


class UsageQuery(Query):
    """`after` is a `round`: only later samples are returned; by default all that are kept."""

    after: Whole = 0
    session: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None, description="Only what the session with this id used."
    )
