"""Messages to hooks, made from events of the record. Pure."""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from orchestrator.ground.traces.traceparent import parsed_traceparent
from orchestrator.record.audit.recorded_event import Recorded
from paddock.audit.chain import Event
from paddock.contract.words import HOOK_EVENTS, HookEvent, Rationale

# If a message would be longer, its longest members are left out.
MOST_BODY_BYTES = 32 * 1024

Members = Mapping[str, Any]


class HookMessage(NamedTuple):
    """What happened in a session: `data` depends on the type."""

    type: HookEvent
    data: Members


class _Source(NamedTuple):
    """The operation whose events give a type of message, and how to make its data."""

    operation: str
    tell: Callable[[Event], Members | None]


def _some(values: Members | None, *names: str) -> dict[str, Any]:
    return {name: (values or {}).get(name) for name in names}


def _created(event: Event) -> Members:
    return _some(event["args"], "image", "labels", "role", "work_id", "episode_id", "parent")


def _closed(event: Event) -> Members:
    """`acknowledged` is false if the session could not be created after all."""
    return {
        **_some(event["result"], "status", "rationale_code", "deadline"),
        "acknowledged": event["args"].get("acknowledged", True),
        "error": event["error"],
    }


def _completed(event: Event) -> Members | None:
    """The end of a run: a turn whose program was a model."""
    if (event["result"] or {}).get("kind") != "run":
        return None
    return {
        "run": event["turn"],
        **_some(event["result"], "tag", "operations", "tokens"),
        "duration_ms": event["duration_ms"],
        "error": event["error"],
    }


def _requested(event: Event) -> Members:
    names = "approval_id", "terminal_id", "tool", "command", "command_sha256", "risk_tier", "files"
    return {**_some(event["args"], *names), "requested_by": event["actor"]}


def _exceeded(event: Event) -> Members:
    return {**_some(event["args"], "kind", "limit", "consumed", "unit"), "error": event["error"]}


def _missed(event: Event) -> Members | None:
    """The end of a session because of a miss in its context pack."""
    if (event["result"] or {}).get("rationale_code") != Rationale.CONTEXT_MISS:
        return None
    return {"error": event["error"]}


def _opened(event: Event) -> Members:
    return {
        **_some(event["args"], "break_glass", "reason", "seconds"),
        **_some(event["result"], "key", "until"),
    }


# Members whose words come from inside a session.
_FROM_INSIDE = ("error", "tag")

# In the order in which messages of one event are sent.
_SOURCES: dict[HookEvent, _Source] = {
    "session.created": _Source("session.create", _created),
    "run.completed": _Source("turn.end", _completed),
    "approval.requested": _Source("approval.request", _requested),
    "budget.exceeded": _Source("budget.exceeded", _exceeded),
    "context.miss": _Source("session.terminated", _missed),
    "access.break_glass": _Source("access.break_glass", _opened),
    "session.closed": _Source("session.terminated", _closed),
}
assert set(_SOURCES) == set(HOOK_EVENTS)  # noqa: S101 - at import


def operations_for(wanted: Iterable[HookEvent]) -> frozenset[str]:
    """The operations whose events give these messages."""
    return frozenset(_SOURCES[each].operation for each in wanted)


def messages_of(event: Event, wanted: Iterable[HookEvent]) -> Iterator[HookMessage]:
    """The messages of these types that an event gives; often there are none."""
    if event["session_id"] is None:
        return
    types = frozenset(wanted)
    for name, (operation, tell) in _SOURCES.items():
        if name not in types or operation != event["operation"]:
            continue
        data = tell(event)
        if data is not None:
            yield HookMessage(name, data)


def without_content(message: HookMessage) -> HookMessage:
    """The message without words from inside its session.

    The line of an approval stays: it is for whoever may decide about it.
    """
    data = {name: value for name, value in message.data.items() if name not in _FROM_INSIDE}
    return message._replace(data=data)


def delivery_id(hook_id: str, event: Recorded, message: HookMessage) -> str:
    """The id of a message to a hook; no other message has the same."""
    text = f"{hook_id}\n{event.hash}\n{message.type}"
    return f"dlv-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def body_of(delivery: str, event: Event, message: HookMessage, key: str | None) -> str:
    """The message as JSON; `key` is the name of the key whose session it is."""
    head = {
        "id": delivery,
        "type": message.type,
        "time": event["time"],
        "session": {
            "id": event["session_id"],
            "incarnation": event["incarnation"],
            "key": key,
            "permission_level": event["permission_level"],
            "workspace_root": event["workspace_root"],
        },
        "event": {"id": event["id"], "seq": event["seq"]},
    }
    place = traceparent_of(event)
    if place is not None:
        head["traceparent"] = place
    data = dict(message.data)
    while True:
        left_out = sorted(set(message.data) - set(data))
        body = _json({**head, "data": data, **({"left_out": left_out} if left_out else {})})
        if len(body.encode()) <= MOST_BODY_BYTES or not data:
            return body
        del data[max(data, key=lambda name: len(_json(data[name])))]


def traceparent_of(event: Event) -> str | None:
    """The span that an event was recorded in, in the W3C's form; None: it is not traced."""
    ids = event["args"].get("trace_id"), event["args"].get("span_id")
    found = parsed_traceparent(f"00-{ids[0]}-{ids[1]}-01")
    return None if found is None else found.text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
