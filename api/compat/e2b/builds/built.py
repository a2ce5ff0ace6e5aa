"""Templates that clients have built: named snapshots, whose texts say the rest."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from api.compat.call import Call
from api.compat.e2b.builds.bodies import Tag
from api.compat.e2b.views import moment
from api.operations.named_snapshots import list_snapshots
from api.shape.objects import validated
from orchestrator.ground.errors import ValidationError
from paddock.contract.fields import Environment
from paddock.contract.requests import Body
from paddock.contract.snapshots import NamedSnapshot, SnapshotListQuery

DEFAULT_TAG = "default"
_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,62})(?::([A-Za-z0-9][A-Za-z0-9._-]{0,63}))?")
_MEMBER = "e2b.build"
_PAGE = "100"
# One text of a snapshot's metadata.
_MOST_TEXT = 8192
_Base = Annotated[dict[str, Annotated[str, Field(max_length=255)]], Field(max_length=2)]


@dataclass(frozen=True, slots=True)
class Start:
    """What a sandbox of the template begins with: commands in a directory, and variables.

    `command` goes on in the background, and `ready` succeeds once it is ready.
    """

    directory: str
    variables: Mapping[str, str]
    command: str | None
    ready: str | None


@dataclass(frozen=True, slots=True)
class Built:
    """One build of a template. `base` has the image and the level of its sandboxes."""

    snapshot_id: str
    build_id: str
    name: str
    tags: tuple[str, ...]
    created_at: str
    base: Mapping[str, str]
    start: Start


def parsed_name(given: str) -> tuple[str, str | None]:
    """A template's name, and the tag behind it if there is one. Raises: ValidationError."""
    name, colon, tag = given.partition(":")
    found = _NAME.fullmatch(name.lower() + colon + tag)
    if found is None:
        raise ValidationError(
            "name must be `name` or `name:tag`: letters, digits, `-` and `_`, at most 63",
            field="name",
        )
    return found[1], found[2]


class _Texts(Body):
    """What a snapshot says of the build that it keeps."""

    id: UUID
    name: str
    tags: Annotated[list[Tag], Field(max_length=32)]
    base: _Base
    directory: Annotated[str, Field(max_length=4096)]
    variables: Environment
    command: str | None
    ready: str | None


def texts(build: Built) -> dict[str, str]:
    """The metadata of the build's snapshot. Raises: ValidationError if it is too much."""
    start = build.start
    said = {
        "id": build.build_id,
        "name": build.name,
        "tags": list(build.tags),
        "base": dict(build.base),
        "directory": start.directory,
        "variables": dict(start.variables),
        "command": start.command,
        "ready": start.ready,
    }
    text = json.dumps(said, ensure_ascii=False)
    if len(text) > _MOST_TEXT:
        raise ValidationError(
            "the template's variables, its start command and its tags are too long together: "
            f"{len(text)} characters, of at most {_MOST_TEXT}",
            field="steps",
        )
    return {_MEMBER: text}


def build_of(snapshot: NamedSnapshot) -> Built | None:
    """The build that the snapshot keeps; None if it keeps none.

    Any client may write such texts: what this one would not have written is none.
    """
    text = snapshot.metadata.get(_MEMBER)
    if text is None:
        return None
    try:
        said = _Texts.model_validate_json(text)
        parsed_name(said.name)
    except ValueError:  # includes that of pydantic
        return None
    except ValidationError:
        return None
    start = Start(said.directory, said.variables, said.command, said.ready)
    named = (str(said.id), said.name, tuple(said.tags), moment(snapshot.created_at))
    return Built(snapshot.id, *named, said.base, start)


async def all_built(call: Call) -> list[Built]:
    """The builds of the caller's key, newest first. Raises: as operations do."""
    found: list[Built] = []
    asked: dict[str, Any] = {"limit": _PAGE, "key": call.context.principal.account}
    while True:
        page = await call.done(list_snapshots, query=validated(SnapshotListQuery, asked))
        for each in page.items:
            build = build_of(each) if each.status == "ready" else None
            if build is not None:
                found.append(build)
        if page.next is None:
            return sorted(found, key=lambda build: build.created_at, reverse=True)
        asked["cursor"] = page.next


def tagged(builds: Sequence[Built], name: str, tag: str | None) -> Built | None:
    """The newest build of that name with that tag; without one, the default."""
    wanted = tag or DEFAULT_TAG
    return next((each for each in builds if each.name == name and wanted in each.tags), None)


def superseded(builds: Iterable[Built]) -> list[Built]:
    """Those, of builds newest first, all of whose tags newer builds have."""
    taken: set[tuple[str, str]] = set()
    found = []
    for build in builds:
        own = {(build.name, tag) for tag in build.tags}
        if own <= taken:
            found.append(build)
        taken |= own
    return found
