"""The file operations with one answer: what a worker is asked, and what is recorded. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sandbox_agent.core import params as given
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files.patches import MOST_PATCH_BYTES
from sandbox_agent.decide.protocol import Message

NAMES = (
    *("list", "stat", "mkdir", "delete", "move", "symlink"),
    *("search", "patch", "copy", "chmod"),
)
MOST_ENTRIES = 10_000
MOST_MATCHES = 1000
_DEEPEST_LIST = 64
_MOST_GLOBS = 64
_MOST_NAMES = 2000
_TEXTS = {
    "move": ("source", "destination"),
    "copy": ("source", "destination"),
    "symlink": ("path", "target"),
    "search": ("path", "text"),
    "patch": (),
}
_RESULTS = ("removed", "files", "skipped")


class Asked(NamedTuple):
    """The members of the worker's request, and the arguments of the event."""

    request: dict[str, Any]
    args: dict[str, Any]


def asked(method: str, params: Message) -> Asked:
    """Checks the parameters of an operation. Raises: AgentError."""
    args: dict[str, Any] = {
        name: given.text(params, name) for name in _TEXTS.get(method, ("path",))
    }
    more: dict[str, Any] = {}
    if method in ("list", "stat") and params.get("attributes") is not None:
        more["attributes"] = given.text(params, "attributes")
    if method == "list":
        args["depth"] = min(given.number(params, "depth"), _DEEPEST_LIST)
        args["limit"] = min(given.number(params, "limit"), MOST_ENTRIES)
        if params.get("glob") is not None:
            args["glob"] = given.text(params, "glob")
    elif method == "delete":
        if params.get("recursive") is True:
            args["recursive"] = True
        more = conditions(params)
    elif method == "search":
        args["regex"] = given.flag(params, "regex")
        args["limit"] = given.number(params, "limit", 1, MOST_MATCHES)
        globs = given.texts(params, "globs")[:_MOST_GLOBS]
        more = {"globs": globs, "ignore_case": given.flag(params, "ignore_case")}
        if not args["text"]:
            raise AgentError("validation_error", "text must not be empty")
    elif method == "patch":
        more = {"patch": given.text(params, "patch"), "names": given.mapping(params, "names")}
        more["dry_run"] = given.flag(params, "dry_run")
        if len(more["patch"]) > MOST_PATCH_BYTES or len(more["names"]) > _MOST_NAMES:
            raise AgentError("too_large", "the patch is too long")
        args["paths"] = sorted(set(more["names"].values()))
    elif method == "copy":
        more = {"most_bytes": given.number(params, "most_bytes")}
        more["parents"] = given.flag(params, "parents")
    elif method == "chmod":
        mode = given.number(params, "permissions", 0, 0o777)
        args["permissions"] = f"{mode:04o}"
        more = {"permissions": mode}
    return Asked({"method": method, **args, **more}, args)


def conditions(params: Message) -> dict[str, list[str]]:
    """The versions that a file must have, or must not have. Raises: AgentError."""
    return {
        name: given.texts(params, name)
        for name in ("match", "none_match")
        if params.get(name) is not None
    }


def result(answer: Mapping[str, Any]) -> dict[str, Any]:
    """What is recorded of a worker's answer."""
    found = {name: answer[name] for name in _RESULTS if name in answer}
    for name in ("entries", "matches", "rejects"):
        if name in answer:
            found[name] = len(answer[name])
    if "matches" in answer:
        found["truncated"] = answer.get("truncated", False)
    if "patched" in answer:
        found["files"] = len(answer["patched"])
    copied = answer.get("copied", {})
    names = ("files", "directories", "links", "bytes", "skipped")
    return found | {name: copied[name] for name in names if type(copied.get(name)) is int}
