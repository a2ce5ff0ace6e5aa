"""How files are opened as streams: what a worker is asked, and what is recorded. Pure."""

from sandbox_agent.core import params as given
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import Message
from sandbox_agent.files import attributes, operations

OPERATIONS = {
    **{"read": "file.read", "write": "file.write", "append": "file.write"},
    **{"pack": "file.pack", "unpack": "file.unpack", "watch": "file.watch"},
}
_ARCHIVES = ("pack", "unpack")
# The members that describe a file that is read.
FACTS = ("permissions", "modified", "version", "start", "length")
# The streams that change nothing: their start is recorded, and not their end.
READING = ("read", "pack", "watch")
# Seconds since the epoch.
_LATEST_TIME = 2**40
_FORMATS = ("tar", "zip")


def worker_params(mode: str, params: Message) -> Message:
    """The parameters of a worker's request besides the path. Raises: AgentError."""
    if mode in _ARCHIVES:
        kind = given.text(params, "format")
        if kind not in _FORMATS:
            raise AgentError("validation_error", f"unknown format: {kind}")
        return {"format": kind, "most_bytes": given.number(params, "most_bytes")}
    if mode == "watch":
        return {"recursive": given.flag(params, "recursive")}
    permissions = params.get("permissions")
    if permissions is not None:
        permissions = given.number(params, "permissions", 0, 0o777)
    modified = params.get("modified")
    if modified is not None:
        modified = given.number(params, "modified", 0, _LATEST_TIME)
    facts = {"permissions": permissions, "modified": modified}
    links: Message = {"links": False} if params.get("links") is False else {}
    if params.get("attributes") is not None:
        named = given.mapping(params, "attributes")
        attributes.check(named)
        links["attributes"] = named
    more = {**links, **operations.conditions(params), **_range(params)}
    return {**facts, "parents": params.get("parents") is True, **more}


def _range(params: Message) -> Message:
    """The bytes that are wanted, if not all. Raises: AgentError."""
    wanted = params.get("range")
    if wanted is None:
        return {}
    if not isinstance(wanted, list) or len(wanted) != 2:
        raise AgentError("validation_error", "range must have two numbers")
    ends = {"first": wanted[0], "last": wanted[1]}
    found = [None if ends[name] is None else given.number(ends, name) for name in ends]
    return {"range": found}


def for_record(mode: str, request: Message) -> Message:
    """How a stream is opened, in its event."""
    if mode == "watch":
        return {"recursive": request["recursive"]}
    if mode in _ARCHIVES:
        return {"format": request["format"]}
    wanted = request.get("range")
    chosen = {} if wanted is None else {"range": "-".join(map(_text, wanted))}
    return {"mode": mode, **chosen}


def _text(end: int | None) -> str:
    return "" if end is None else str(end)


def for_event(answer: Message) -> Message:
    """The summary of an archive as its event has it: without the names of skipped entries."""
    summary: Message = answer.get("summary", {})
    return {name: value for name, value in summary.items() if name != "skipped_names"}


def for_caller(answer: Message) -> Message:
    """The summary of an archive as the caller gets it: without the paths."""
    summary: Message = answer.get("summary", {})
    return {name: value for name, value in summary.items() if name != "paths"}


def error_of(answer: Message) -> AgentError | None:
    """The error in a worker's answer, if there is one."""
    if "error" not in answer:
        return None
    error = answer["error"]
    rule = error.get("rule")
    return AgentError(
        str(error.get("code")), str(error.get("message")), rule if isinstance(rule, str) else None
    )


def asked_by(params: Message) -> Message:
    """The token of the caller that asks, which the event returns to the control plane."""
    asker = params.get("asker")
    return {"asker": asker} if isinstance(asker, str) else {}
