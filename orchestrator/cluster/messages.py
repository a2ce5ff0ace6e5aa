"""Messages of the outbox: what a node tells the cluster after the event is committed. Pure.

Each is applied once, in their order, by `orchestrator/cluster/postgres/delivery.py`.
"""

from collections.abc import Mapping
from dataclasses import asdict
from enum import StrEnum
from typing import Any

from orchestrator.cluster.base import Summary
from orchestrator.ground.limits import KeyUsage
from orchestrator.rules.access.user_ends import UserEnd

Body = Mapping[str, Any]


class Kind(StrEnum):
    """What a message tells; its body has the members of the function of the same name."""

    CHANGED = "changed"
    REHANDLED = "rehandled"
    RELEASED = "released"
    UNCLAIMED = "unclaimed"
    PURGED = "purged"
    SETTLED = "settled"
    ARRIVED = "arrived"
    FREED = "freed"
    USER_END = "user-end"


def changed(session_key: str, summary: Summary) -> Body:
    """Lists show this summary of the session from now on."""
    return {"session_key": session_key, "summary": stored_summary(summary)}


def rehandled(session_key: str, handle_sha256: str) -> Body:
    """The session has another handle, of which this is the digest."""
    return {"session_key": session_key, "handle_sha256": handle_sha256}


def released(session_key: str, ended_at: str) -> Body:
    """The session has ended, at that time (ISO 8601): its id may be used again on this node."""
    return {"session_key": session_key, "ended_at": ended_at}


def unclaimed(session_key: str) -> Body:
    """The session was never created: nothing of it stays, nor a workspace that is new with it."""
    return {"session_key": session_key}


def purged(workspace_id: str) -> Body:
    """The workspace, or the volume, is gone."""
    return {"workspace_id": workspace_id}


def settled(session_key: str, amounts: KeyUsage) -> Body:
    """The session uses exactly these amounts."""
    return {"session_key": session_key, "amounts": asdict(amounts)}


def arrived(session_key: str) -> Body:
    """The session that was moved here is active."""
    return {"session_key": session_key}


def freed(thing_id: str) -> Body:
    """The volume or the snapshot of that id has no name any more."""
    return {"id": thing_id}


def user_end(end: UserEnd) -> Body:
    """Nothing is valid any more on any node that this ends of a user."""
    return {
        "name": end.name,
        "what": end.what.value,
        "moment": end.moment.isoformat(),
    }


def stored_summary(summary: Summary) -> dict[str, Any]:
    """The summary as JSON."""
    return {**asdict(summary), "labels": dict(summary.labels)}


def read_summary(stored: Body) -> Summary:
    """The summary of `stored_summary`; members of later versions are left out."""
    return Summary(
        status=stored["status"],
        level=stored["level"],
        created_at=stored["created_at"],
        labels=stored.get("labels") or {},
        work_id=stored.get("work_id"),
        parent=stored.get("parent"),
    )
