"""An event of the record as an event of OCSF. Pure."""

import ipaddress
import shlex
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from orchestrator.operate.exports.ocsf_kinds import (
    KINDS,
    OCSF_VERSION,
    UNKNOWN,
    OcsfClass,
    OcsfKind,
    Severity,
)
from paddock.audit.chain import Event

_ACTIONS = {"allow": (1, "Allowed"), "deny": (2, "Denied"), "pending": (99, "Pending")}
# Members of `args` that name what an operation of the API is about.
_NAMES = ("id", "name", "approval_id", "key", "session_id", "template", "snapshot", "volume")
_VIRTUAL, _SERVER = 6, 1
_MOST_PORT = 65_535
_MOST_ADDRESS = 40  # characters of OCSF's `ip_t`


class OcsfSource(NamedTuple):
    """The control plane whose record it is: its id, and its version."""

    uid: str
    version: str


class _Members:
    """The members of an event's `args` and `result` that nothing has taken yet."""

    def __init__(self, args: Mapping[str, Any], result: Mapping[str, Any] | None) -> None:
        self.args = dict(args)
        self.result = dict(result or {})

    def text(self, name: str) -> str | None:
        """Takes an argument that is a text; None: there is none."""
        return self.args.pop(name) if isinstance(self.args.get(name), str) else None

    def number(self, name: str) -> int | None:
        """Takes a whole number of the result; None: there is none."""
        return self.result.pop(name) if _is_whole(self.result.get(name)) else None


def ocsf_event(event: Event, chain: str, source: OcsfSource) -> dict[str, Any]:
    """The event, a plain JSON object; `chain` is the key of the chain that it is in.

    What OCSF has no attribute for is in `unmapped`, so that nothing is left out.
    """
    kind = KINDS.get(event["operation"], UNKNOWN)
    left = _Members(event["args"], event["result"])
    system = kind.of in (OcsfClass.FILE, OcsfClass.PROCESS)
    profiles = ["security_control"] if system else ["host", "security_control"]
    found: dict[str, Any] = {
        "class_uid": kind.of.uid,
        "category_uid": kind.of.category_uid,
        "activity_id": kind.activity_id,
        "activity_name": kind.activity,
        "type_uid": kind.type_uid,
        "time": _milliseconds(event["time"]),
        "severity_id": _severity(event, kind),
        "actor": _actor(event),
        "device": _device(event, source),
        **_outcome(event),
    }
    trace_id = left.text("trace_id")
    if trace_id is not None and kind.of is OcsfClass.API:
        profiles.append("trace")
        found["trace"] = {"uid": trace_id}
    found |= _FILL[kind.of](event, left)
    found["metadata"] = _metadata(event, chain, source, profiles, trace_id)
    found["unmapped"] = _unmapped(event, left)
    return found


def _metadata(
    event: Event, chain: str, source: OcsfSource, profiles: list[str], trace_id: str | None
) -> dict[str, Any]:
    found: dict[str, Any] = {
        "version": OCSF_VERSION,
        "product": {"name": "Paddock", "vendor_name": "Paddock", "version": source.version},
        "profiles": profiles,
        # The same for each delivery of the event, and for no other event.
        "uid": event["hash"],
        "event_code": event["operation"],
        "log_name": chain,
        "sequence": event["seq"],
        "original_time": event["time"],
    }
    if trace_id is not None:
        found["correlation_uid"] = trace_id
    return found


def _milliseconds(time: str) -> int:
    """Milliseconds since 1970 of the record's form of a time."""
    return int(datetime.fromisoformat(time).timestamp() * 1000)


def _severity(event: Event, kind: OcsfKind) -> int:
    if event["decision"] == "deny":
        return max(kind.severity, Severity.MEDIUM)
    return max(kind.severity, Severity.LOW) if event["error"] else kind.severity


def _actor(event: Event) -> dict[str, Any]:
    actor: dict[str, Any] = {"app_name": event["source"]}
    if event["actor"] not in (None, "system", "agent"):
        actor["user"] = {"name": event["actor"]}
    if event["session_id"] is not None:
        actor["session"] = {"uid": event["session_id"]}
    return actor


def _device(event: Event, source: OcsfSource) -> dict[str, Any]:
    """The sandbox, or the control plane for what concerns no session."""
    if event["session_id"] is None:
        return {"type_id": _SERVER, "type": "Server", "uid": source.uid}
    return {
        "type_id": _VIRTUAL,
        "type": "Virtual",
        "uid": event["session_id"],
        "instance_uid": source.uid,
    }


def _outcome(event: Event) -> dict[str, Any]:
    failed = event["error"] is not None or event["decision"] == "deny"
    found: dict[str, Any] = {
        "status_id": 2 if failed else 1,
        "status": "Failure" if failed else "Success",
        "message": event["operation"],
    }
    if event["error"] is not None:
        found["status_detail"] = event["error"]
    if event["duration_ms"] is not None:
        found["duration"] = event["duration_ms"]
    if event["decision"] is not None:
        found["action_id"], found["action"] = _ACTIONS[event["decision"]]
        found["message"] = f"{event['operation']}: {event['decision']}"
    if event["rule"] is not None:
        found["policy"] = {"name": event["rule"]}
    return found


def _process(event: Event, left: _Members) -> dict[str, Any]:
    names = [left.text(name) for name in ("command_id", "terminal_id", "context_id", "shell_id")]
    process: dict[str, Any] = {
        "uid": next((each for each in names if each is not None), event["hash"]),
        "sandbox": event["session_id"] or "",
    }
    words = left.args.get("argv")
    if isinstance(words, list) and words and all(isinstance(word, str) for word in words):
        process["cmd_line"] = shlex.join(left.args.pop("argv"))
        process["name"] = _base(words[0])
    for ours, theirs in (("cwd", "working_directory"), ("path", "path")):
        text = left.text(ours)
        if text is not None:
            process[theirs] = text
    found: dict[str, Any] = {"process": process}
    exit_code = left.number("exit_code")
    if exit_code is not None:
        found["exit_code"] = exit_code
    return found


def _file(event: Event, left: _Members) -> dict[str, Any]:
    folder = event["operation"] in ("file.mkdir", "file.list", "file.pack", "file.unpack")
    source, path = left.text("source"), left.text("path")
    found = {"file": _named_file(source or path, folder=folder)}
    destination = left.text("destination")
    if destination is not None:
        found["file_result"] = _named_file(destination, folder=False)
    return found


def _named_file(path: str | None, *, folder: bool) -> dict[str, Any]:
    path = path or "."
    kind = {"type_id": 2, "type": "Folder"} if folder else {"type_id": 0, "type": "Unknown"}
    return {"name": _base(path), "path": path, **kind}


def _network(event: Event, left: _Members) -> dict[str, Any]:
    inward = event["operation"].startswith("port.")
    sandbox: dict[str, Any] = {"uid": event["session_id"] or ""}
    other: dict[str, Any] = {}
    host = left.text("host")
    if host is not None:
        other["ip" if _is_address(host) else "hostname"] = host
    port: Any = left.args.get("port")
    if _is_whole(port) and 0 <= port <= _MOST_PORT:
        (sandbox if inward else other)["port"] = left.args.pop("port")
    connection: dict[str, Any] = {
        "direction_id": 1 if inward else 2,
        "direction": "Inbound" if inward else "Outbound",
    }
    uid = left.text("connection_id")
    if uid is not None:
        connection["uid"] = uid
    found: dict[str, Any] = {"connection_info": connection}
    found["dst_endpoint" if inward else "src_endpoint"] = sandbox
    if other and (other.keys() - {"port"}):
        found["dst_endpoint"] = other
    sent, received = left.number("sent_bytes"), left.number("received_bytes")
    if sent is not None and received is not None:
        traffic = {"bytes_out": sent, "bytes_in": received, "bytes": sent + received}
        found["traffic"] = traffic
    return found


def _account(event: Event, left: _Members) -> dict[str, Any]:
    name = left.text("name") or left.text("key") or left.text("id")
    return {"user": {"name": name or "unknown"}}


def _authentication(event: Event, left: _Members) -> dict[str, Any]:
    name = left.text("name") or event["actor"]
    return {"user": {"name": name or "unknown"}, "service": {"name": "Paddock"}}


def _api(event: Event, left: _Members) -> dict[str, Any]:
    found: dict[str, Any] = {
        "api": {"operation": event["operation"], "service": {"name": "Paddock"}},
        "src_endpoint": {"svc_name": event["source"]},
    }
    named = [(name, left.text(name)) for name in _NAMES]
    resources = [{"uid": uid, "type": name} for name, uid in named if uid]
    if event["session_id"] is not None:
        resources.append({"uid": event["session_id"], "type": "session"})
    if resources:
        found["resources"] = resources
    return found


_FILL: dict[OcsfClass, Callable[[Event, _Members], dict[str, Any]]] = {
    OcsfClass.FILE: _file,
    OcsfClass.PROCESS: _process,
    OcsfClass.ACCOUNT: _account,
    OcsfClass.AUTHENTICATION: _authentication,
    OcsfClass.NETWORK: _network,
    OcsfClass.API: _api,
}


def _unmapped(event: Event, left: _Members) -> dict[str, Any]:
    names = ("id", "incarnation", "turn", "permission_level", "workspace_root", "tokens_used")
    found = {name: event.get(name) for name in (*names, "agent", "prev_hash")}
    found |= {"args": left.args or None, "result": left.result or None}
    return {name: value for name, value in found.items() if value is not None}


def _base(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2] or path


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return len(host) <= _MOST_ADDRESS
