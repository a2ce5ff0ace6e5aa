"""Volumes: files of a key that its sessions mount by name, and that outlive all of them."""

from typing import Annotated, Any

from pydantic import Field

from paddock.contract.base import Count, Model, Time, example
from paddock.contract.cluster import AtNode, Missing, PlacementBody
from paddock.contract.fields import PageSize
from paddock.contract.requests import Body, Query
from paddock.contract.words import VOLUME_NAME

_MIB = 1024 * 1024
SMALLEST_VOLUME = 16 * _MIB
LARGEST_VOLUME = 1024 * 1024 * _MIB

VolumeName = Annotated[str, Field(pattern=VOLUME_NAME, max_length=64)]
_VOLUME: dict[str, Any] = {
    "name": "cache",
    "key": "ci",
    "node": None,
    "size_bytes": 1073741824,
    "used_bytes": 52428800,
    "created_at": "2026-03-04T09:30:12.482113Z",
    "sessions": [{"id": "fix-1", "path": "/data/cache", "read_only": False}],
}


class VolumeUser(Model):
    """A live session that has the volume."""

    id: str
    path: str = Field(description="Its path in the sandbox.")
    read_only: bool


class Volume(Model):
    """A volume."""

    model_config = example(_VOLUME)

    name: str
    key: str = Field(description="The key whose sessions can have it.")
    node: AtNode = None
    size_bytes: Count = Field(description="What it can hold at most, with its file system.")
    used_bytes: Count | None = Field(
        description="What it holds; null: the host does not count it, or did not answer in time."
    )
    created_at: Time
    sessions: list[VolumeUser] = Field(description="The live sessions that have it.")


class Volumes(Model):
    """A page of volumes, by key and name; `next` is the `cursor` of the next page."""

    model_config = example({"items": [_VOLUME], "next": None, "missing": []})

    items: list[Volume]
    next: str | None
    missing: Missing = []


class SessionVolume(Model):
    """A volume that a session has."""

    name: str
    path: str = Field(description="Its path in the sandbox.")
    read_only: bool


class VolumeMount(Body):
    """A volume of the session's key, and where the session has it."""

    name: VolumeName
    path: Annotated[str, Field(min_length=2, max_length=256)] = Field(
        description="An absolute path in the sandbox, such as `/data/cache`: not in the workspace, "
        "in /tmp or in a directory of the system."
    )
    read_only: bool = Field(
        default=False,
        description="One session at a time can write to a volume; any number can read it.",
    )


class VolumeBody(Body):
    """A new volume, which is empty."""

    name: VolumeName
    size_bytes: int = Field(ge=SMALLEST_VOLUME, le=LARGEST_VOLUME)
    placement: PlacementBody = Field(
        default_factory=PlacementBody, description="Where it is put in a cluster."
    )


class VolumeKeyQuery(Query):
    """Whose volume is meant."""

    key: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None,
        description="A key's name, for those who see all; by default the caller's.",
    )


class VolumeListQuery(Query):
    """Which volumes are listed."""

    key: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="A key's name, for those who see all; by default all."
    )
    cursor: Annotated[str, Field(max_length=160)] | None = None
    limit: PageSize = 100
