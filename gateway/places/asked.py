"""What a request for something new says about its place. Pure.

What is not as it should be counts as not said, and a node refuses it in its own words.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any, NamedTuple, TypeGuard
from urllib.parse import quote

from gateway.placement import Wanted
from orchestrator.settings.e2b_names import DEFAULT_TEMPLATES, LEVEL, without_version

# The contract's default.
_USUAL_LEVEL = "medium"
_MOST_LABELS = 32
_MOST_NUMBER = 2**50
_MOST_VOLUMES = 8
_MOST_NAME = 512
_E2B = "/compat/e2b"


class Need(NamedTuple):
    """What the node must have: where nodes show it, what it is called, and the member naming it.

    `shared`: several nodes may have it, and any of them will do.
    """

    path: str
    name: str
    field: str
    shared: bool = False


class Asked(NamedTuple):
    """Where it may be put: `near` is a session, on whose node it must be.

    `is_new`: nobody has had the id before.
    """

    wanted: Wanted = Wanted()
    session_id: str | None = None
    near: str | None = None
    needs: tuple[Need, ...] = ()
    is_new: bool = False


class Known(NamedTuple):
    """The levels and images of all nodes, by which names of E2B's templates are understood."""

    levels: Collection[str]
    images: Collection[str]


def asked_in(body: Any, owner: str | None) -> Asked:
    """What the body of a new session says."""
    if not isinstance(body, dict):
        return Asked(Wanted(owner=owner))
    level = _text(body, "permission_level")
    if level is None and _text(body, "template") is None:
        level = _USUAL_LEVEL
    limits = _members(body, "limits")
    wanted = Wanted(
        level,
        _text(body, "image"),
        owner,
        _labels(body),
        _number(limits, "cpus"),
        _whole(limits, "memory_bytes"),
    )
    needs = [
        Need(f"/api/volumes/{_quoted(name)}", f"volume {name}", "volumes")
        for name in _volumes(body.get("volumes"))
    ]
    snapshot = _text(body, "from_snapshot")
    if is_segment(snapshot):
        path = f"/api/snapshots/{_quoted(snapshot)}"
        needs.append(Need(path, f"snapshot {snapshot}", "from_snapshot"))
    return Asked(wanted, _text(body, "id"), _near(body), tuple(needs))


def asked_in_e2b(body: Any, owner: str | None, level: str | None, known: Known) -> Asked:
    """What the body of a new sandbox of E2B's says; `level` is that of who names none."""
    if not isinstance(body, dict):
        return Asked(Wanted(owner=owner))
    given = _text(body, "templateID") or ""
    name = without_version(given)
    wanted = Wanted(level, owner=owner)
    needs = [
        Need(f"{_E2B}/volumes/{_quoted(name)}", f"volume {name}", "volumeMounts")
        for name in _volumes(body.get("volumeMounts"))
    ]
    if given in known.images:
        wanted = Wanted(level, given, owner)
    elif name in known.levels and name not in DEFAULT_TEMPLATES:
        wanted = Wanted(name, owner=owner)
    elif is_segment(given) and name not in DEFAULT_TEMPLATES:
        # An operator's template, which all nodes have, one that a client has built, or a snapshot.
        wanted = Wanted(owner=owner)
        path = f"{_E2B}/templates/aliases/{_quoted(given)}"
        needs.append(Need(path, f"template {given}", "templateID", shared=True))
    named = _text(_members(body, "metadata", 256), LEVEL)
    if named is not None:
        wanted = Wanted(named, wanted.image, owner)
    return Asked(wanted, needs=tuple(needs))


def volume_in(body: Any, owner: str | None) -> Asked:
    """What the body of a new volume says about its place."""
    if not isinstance(body, dict):
        return Asked(Wanted(owner=owner))
    return Asked(Wanted(owner=owner, labels=_labels(body)), near=_near(body))


def template_in(body: Any, *members: str) -> str | None:
    """The template of E2B's that the first of these members names, without its tag."""
    given = [_text(body, each) for each in members] if isinstance(body, dict) else []
    name = next((each for each in given if each is not None), "").partition(":")[0].lower()
    return name if is_segment(name) else None


def signature_of(method: str, raw_query: str) -> Need:
    """The signature of an address that is used with that method."""
    path = f"{_E2B}/files/signer?{raw_query}&method={method}"
    return Need(path, "this signature", "signature")


def need_of_template(name: str) -> Need:
    """A template that a client has built."""
    path = f"{_E2B}/templates/{_quoted(name)}/tags"
    return Need(path, f"template {name}", "name", shared=True)


def with_id(body: bytes, found: Mapping[str, Any], session_id: str) -> bytes:
    """The body of a new session with that id, which has none; `found` is what the body says."""
    member = f'"id":{json.dumps(session_id)}'.encode()
    begin = body.index(b"{") + 1
    return b"".join((body[:begin], member, b"," if found else b"", body[begin:]))


def _volumes(value: Any) -> list[str]:
    """The names of the mounted volumes."""
    mounts = value[:_MOST_VOLUMES] if isinstance(value, list) else []
    names = [_text(each, "name") for each in mounts if isinstance(each, dict)]
    return list(dict.fromkeys(name for name in names if is_segment(name)))


def is_segment(name: str | None) -> TypeGuard[str]:
    """Whether it can be one segment of a path."""
    return name is not None and name not in ("", ".", "..")


def _labels(body: Mapping[str, Any]) -> Mapping[str, str]:
    labels = _members(_members(body, "placement"), "labels")
    return {name: value for name, value in labels.items() if isinstance(value, str)}


def _near(body: Mapping[str, Any]) -> str | None:
    return _text(_members(body, "placement"), "near")


def _quoted(name: str) -> str:
    return quote(name, safe="")


def _text(body: Mapping[str, Any], name: str) -> str | None:
    value = body.get(name)
    return value if isinstance(value, str) and len(value) <= _MOST_NAME else None


def _members(body: Mapping[str, Any], name: str, most: int = _MOST_LABELS) -> Mapping[str, Any]:
    value = body.get(name)
    return value if isinstance(value, dict) and len(value) <= most else {}


def _number(body: Mapping[str, Any], name: str) -> float | None:
    """A number of the body that a node could have."""
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if 0 < value < _MOST_NUMBER else None


def _whole(body: Mapping[str, Any], name: str) -> int | None:
    value = _number(body, name)
    return None if value is None else int(value)
