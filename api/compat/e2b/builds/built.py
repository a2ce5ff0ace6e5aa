"""Templates that clients have built: named snapshots, whose texts say the rest.

One text has what the build was made of and with which tags. Each tag that is assigned or removed
later is a text of its own, so that changes at the same time do not undo each other.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from api.compat.call import Call
from api.compat.e2b.builds.bodies import TAG, Tag
from api.compat.e2b.views import moment
from api.operations.named_snapshots import list_snapshots
from api.shape.objects import validated
from orchestrator.ground.errors import ValidationError
from paddock.contract.fields import Environment
from paddock.contract.requests import Body
from paddock.contract.snapshots import NamedSnapshot, SnapshotListQuery

DEFAULT_TAG = "default"
_NAME = re.compile(r"([a-z0-9][a-z0-9_-]{0,62})(?::([A-Za-z0-9][A-Za-z0-9._-]{0,63}))?")
_TAG = re.compile(TAG)
_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}\.\d{6}Z", re.ASCII)
_MEMBER = "e2b.build"
_TAGGED = "e2b.tag."
# The text of a tag that was removed; else it has the time since which it is the build's.
_REMOVED = ""
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
    """One build of a template. `base` has the image and the level of its sandboxes.

    `tags` have the time since which each is the build's: of several builds, the latest has it.
    `first_tags` are those with which it was built. `digest` is that of all that went in, if it is
    known.
    """

    snapshot_id: str
    build_id: str
    name: str
    tags: Mapping[str, str]
    first_tags: Collection[str]
    created_at: str
    base: Mapping[str, str]
    start: Start
    digest: str | None = None


def parsed_name(given: str, field: str = "name") -> tuple[str, str | None]:
    """A template's name, and the tag behind it if there is one.

    Raises: ValidationError naming the field.
    """
    name, colon, tag = given.partition(":")
    found = _NAME.fullmatch(name.lower() + colon + tag)
    if found is None:
        raise ValidationError(
            f"{field} must be `name` or `name:tag`: letters, digits, `-` and `_`, at most 63",
            field=field,
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
    digest: Annotated[str, Field(max_length=64)] | None = None


def texts(build: Built) -> dict[str, str]:
    """The metadata of the build's snapshot. Raises: ValidationError if it is too much."""
    start = build.start
    said = {
        "id": build.build_id,
        "name": build.name,
        "tags": list(build.first_tags),
        "base": dict(build.base),
        "directory": start.directory,
        "variables": dict(start.variables),
        "command": start.command,
        "ready": start.ready,
        "digest": build.digest,
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
    at = moment(snapshot.created_at)
    since = {**dict.fromkeys(said.tags, at), **_changed_tags(snapshot.metadata)}
    tags = {tag: time for tag, time in since.items() if time != _REMOVED}
    named = (snapshot.id, str(said.id), said.name, tags, said.tags)
    return Built(*named, at, said.base, start, said.digest)


def _changed_tags(metadata: Mapping[str, str]) -> dict[str, str]:
    found = {}
    for name, text in metadata.items():
        tag = name.removeprefix(_TAGGED)
        if tag != name and _TAG.fullmatch(tag) and (text == _REMOVED or _TIME.fullmatch(text)):
            found[tag] = text
    return found


def assigned(tags: Iterable[str], at: str) -> dict[str, str | None]:
    """The changes of a snapshot's texts by which a build gets those tags."""
    return {_TAGGED + tag: at for tag in tags}


def removed(build: Built, tag: str) -> dict[str, str | None]:
    """The change of a snapshot's texts by which a build loses a tag."""
    return {_TAGGED + tag: _REMOVED if tag in build.first_tags else None}


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


def holders(builds: Iterable[Built]) -> dict[tuple[str, str], Built]:
    """The build that each name with each tag means, of builds newest first."""
    found: dict[tuple[str, str], Built] = {}
    for build in builds:
        for tag, since in build.tags.items():
            holder = found.get((build.name, tag))
            if holder is None or holder.tags[tag] < since:
                found[build.name, tag] = build
    return found


def tagged(builds: Iterable[Built], name: str, tag: str | None) -> Built | None:
    """The build that this name means with that tag; without one, with the default."""
    return holders(builds).get((name, tag or DEFAULT_TAG))


def superseded(builds: Sequence[Built]) -> list[Built]:
    """Those, of builds newest first, that no name means with any tag."""
    meant = {build.build_id for build in holders(builds).values()}
    return [build for build in builds if build.build_id not in meant]
