"""What a request is for, by its method and its target alone. Pure.

A node reads the path again by its own rules, and decides by them. An id that is read differently
here leads to a node that does not know it, and to nothing else.
"""

import re
from enum import Enum, auto
from typing import NamedTuple
from urllib.parse import unquote

from orchestrator.settings.e2b_names import SANDBOX_HEADER, plain_id
from paddock.contract.words import ID_PATTERN

_ID = re.compile(ID_PATTERN, re.ASCII)
_TARGET = re.compile(r"/[!-\"$-~]*", re.ASCII)
E2B_HEADER = SANDBOX_HEADER
_MOST_PARTS = 9
_E2B = "/compat/e2b"
# Addresses that E2B's SDKs sign: they name no sandbox, and may have nothing before them.
_SIGNED = frozenset({"/files", f"{_E2B}/files"})
# What each node has of its own, until the cluster's database has it for all of them.
_OF_EACH_NODE = frozenset({"volumes", "snapshots", "usage", "events", "audit", "approvals"})


class Kind(Enum):
    """Where a request goes."""

    SESSION = auto()  # to the node of the session
    ENSURE = auto()  # the same, or to a new session's node
    CREATE = auto()  # to a new session's node; the body is read to choose it
    SANDBOX = auto()  # the same, for a body of E2B's
    RESTORE = auto()  # the same, for a snapshot, whose beginning is read
    VOLUME = auto()  # to a new volume's node
    NAMED = auto()  # to the node that has what the path names
    BUILD = auto()  # to the node on which a key's templates are built
    TEMPLATE = auto()  # to the node that has the template that the body names
    SIGNED = auto()  # to the node that knows who has signed the address
    BODY = auto()  # to the node of the session that the body names
    ANY = auto()  # to any node: all of them answer alike
    ONE = auto()  # to the node that the query names, or to any
    NONE = auto()  # nowhere: each node would answer for itself


class Aim(NamedTuple):
    """Where a request goes; `session_id` is known for SESSION and ENSURE.

    `member` is the member of the body that names the session of BODY, or the template of TEMPLATE.
    `path` is where nodes show what NAMED names; `shared`: several of them may have it, `stays`: it
    is always on the same node.
    """

    kind: Kind
    session_id: str = ""
    member: str = ""
    path: str = ""
    shared: bool = False
    stays: bool = False


_ANY, _NONE = Aim(Kind.ANY), Aim(Kind.NONE)


def is_target(raw_path: str) -> bool:
    """Whether it is the target of a request to a server: a path, in visible ASCII."""
    return _TARGET.fullmatch(raw_path) is not None


def aim_of(method: str, raw_path: str, sandbox: str | None = None) -> Aim:
    """Where a request to the API goes. `sandbox` is the value of E2B's header.

    `raw_path` is as it was sent, with its query.
    """
    path, _, query = raw_path.partition("?")
    parts = path.split("/", _MOST_PARTS)[1:]
    if sandbox is None and path in _SIGNED and "signature=" in query:
        return Aim(Kind.SIGNED)
    if parts[0] == "api":
        return _of_api(method, parts[1:])
    if parts[0] == "compat" and len(parts) > 1:
        if parts[1] == "e2b":
            return _of_e2b(method, parts[2:], sandbox)
        return _of_session(parts[2] if len(parts) > 2 else "")
    return _ANY if sandbox is None else _of_session(plain_id(sandbox))


def _of_api(method: str, parts: list[str]) -> Aim:
    match parts:
        case ["sessions"]:
            return Aim(Kind.CREATE) if method == "POST" else _NONE
        case ["sessions", "restore"] if method == "POST":
            return Aim(Kind.RESTORE)
        case ["volumes"] if method == "POST":
            return Aim(Kind.VOLUME)
        case ["volumes" | "snapshots" as collection, name] if name:
            return Aim(Kind.NAMED, path=f"/api/{collection}/{name}")
        case ["sessions", session_id]:
            found = _of_session(session_id)
            ensures = method == "PUT" and found.kind is Kind.SESSION
            return found._replace(kind=Kind.ENSURE) if ensures else found
        case ["sessions", session_id, *_]:
            return _of_session(session_id)
        case ["tickets"] if method == "POST":
            return Aim(Kind.BODY, member="session_id")
        case ["policies", "explain"] if method == "POST":
            return Aim(Kind.BODY, member="session")
        case ["templates", _, "build"]:
            return _NONE
        case ["owners" | "retention", *_]:
            return Aim(Kind.ONE)
        case [name, *_] if name in _OF_EACH_NODE:
            return _NONE
    return _ANY


def _of_e2b(method: str, parts: list[str], sandbox: str | None) -> Aim:
    if parts[:1] == ["v2"]:
        parts = parts[1:]
    match parts:
        case ["sandboxes"]:
            return Aim(Kind.SANDBOX) if method == "POST" else _NONE
        case ["sandboxes", session_id, *_]:
            return _of_session(plain_id(session_id))
        case ["volumes"] if method == "POST":
            return Aim(Kind.VOLUME)
        case ["volumes", name] if name:
            return Aim(Kind.NAMED, path=f"{_E2B}/volumes/{name}")
        case ["templates", *rest]:
            return _of_templates(method, rest)
        case ["v3", "templates"] if method == "POST":
            return Aim(Kind.BUILD)
    if sandbox is not None:
        return _of_session(plain_id(sandbox))
    return _NONE


def _of_templates(method: str, parts: list[str]) -> Aim:
    match parts:
        case [] if method == "POST":
            return Aim(Kind.BUILD)
        case ["tags"] if method in ("POST", "DELETE"):
            return Aim(Kind.TEMPLATE, member="target" if method == "POST" else "name")
        case [name, "tags"] if name:
            return Aim(Kind.NAMED, path=f"{_E2B}/templates/{name}/tags", shared=True)
        case [name, "builds", build, *_] if name and build:
            path = f"{_E2B}/templates/{name}/builds/{build}/status"
            return Aim(Kind.NAMED, path=path, stays=True)
        case [name, "files", digest] if method == "GET" and name and digest:
            return Aim(Kind.NAMED, path=f"{_E2B}/templates/{name}/files/{digest}")
        case ["aliases", name] if name:
            return Aim(Kind.NAMED, path=f"{_E2B}/templates/aliases/{name}", shared=True)
        case [name] if method == "DELETE" and name:
            return Aim(Kind.NAMED, path=f"{_E2B}/templates/aliases/{name}", shared=True)
    return _NONE


def _of_session(text: str) -> Aim:
    """Any node says what is wrong with what is no id."""
    session_id = unquote(text)
    return Aim(Kind.SESSION, session_id) if _ID.fullmatch(session_id) else _ANY
