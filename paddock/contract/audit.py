"""Models of the audit ledger."""

from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from paddock.contract.base import WORDS, Count, Model, Sha256, Time, example
from paddock.contract.cluster import Missing, PositivePosition, WholePosition
from paddock.contract.fields import Moment, PageSize, Whole
from paddock.contract.requests import Body, IncarnationQuery, Query, SessionFilter

# A search says of no more archived chains that it has not searched them.
MOST_ARCHIVED = 1000
_EVENT = {
    "id": 812,
    "seq": 2,
    "time": "2026-03-04T09:30:12.482113Z",
    "session_id": "sess-4f1c0a9be27d3586",
    "incarnation": 1,
    "turn": None,
    "source": "control-plane",
    "actor": "handle:sess-4f1c0a9be27d3586",
    "operation": "command.start",
    "decision": "allow",
    "rule": None,
    "permission_level": "low",
    "workspace_root": "/var/lib/paddock/session-workspaces/sess-4f1c0a9be27d3586",
    "args": {"argv": ["ls", "-la"], "command_id": "8d3c0f5a1b2e4967", "cwd": "/workspace"},
    "result": None,
    "error": None,
    "duration_ms": None,
    "tokens_used": None,
    "agent": None,
    "salt": "0f1e2d3c4b5a69788796a5b4c3d2e1f0",
    "prev_hash": "6b1f0e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1",
    "hash": "a3f5c8e1b2d4069788796a5b4c3d2e1f06b1f0e2d3c4b5a69788796a5b4c3d2e",
}


class AgentPosition(Model):
    """The event's position among those of the sandbox's agent."""

    boot_id: str
    seq: int = Field(ge=1)


class AuditEvent(Model):
    """One event of a hash chain.

    `hash` is sha256(`prev_hash` + text); the first `prev_hash` is 64 zeros. The text is the event
    as JSON (sorted keys, no white space, UTF-8) with `content` for `salt`, `args`, `result`,
    `error`, which is the sha256 of an object of the four. Old events have no `salt`: they are
    hashed whole.
    """

    SPARSE = True

    model_config = example(_EVENT)

    id: int = Field(ge=1, description="Ascending over all chains.")
    seq: int = Field(ge=1, description="From 1 in each chain.")
    time: Time
    session_id: str | None = Field(description="Null for events of no session.")
    incarnation: Count | None = Field(
        default=None,
        description="Which session of that id, from 1. Events of earlier versions were hashed "
        "without it, and lack it in exports and streams.",
    )
    turn: Count | None
    source: Annotated[Literal["control-plane", "agent", "engine"], WORDS]
    actor: str = Field(description="A key's name, `handle:<session>`, `agent` or `system`.")
    operation: str
    decision: Annotated[Literal["allow", "deny", "pending"], WORDS] | None
    rule: str | None = Field(description="The rule that refused it.")
    permission_level: str | None
    workspace_root: str | None
    args: dict[str, Any] = Field(
        description="What was asked for. Of a long text `name`, the beginning is kept, with the "
        "size and digest of the whole text in `name_bytes` and `name_sha256`; the words of a "
        "command count as one text with a NUL after each word. Secrets are cut out before.",
    )
    result: dict[str, Any] | None
    error: str | None
    duration_ms: Count | None
    tokens_used: Count | None
    agent: AgentPosition | None
    salt: str | None = Field(
        None, description="Random: without it, nobody can try out the content."
    )
    content: Sha256 | None = Field(None, description="Of an erased event: the digest of the four.")
    prev_hash: Sha256
    hash: Sha256


class AuditEvents(Model):
    """Events in order; `next` is the `after` of the next page."""

    SPARSE = True

    model_config = example({"items": [_EVENT], "next": None})

    items: list[AuditEvent]
    next: int | None


class FoundEvents(Model):
    """Events, newest first; `next` is the `cursor` of the next page, even after an empty page.

    It is a number, or a text of a cluster, whose events have ids of their nodes.
    """

    SPARSE = True

    model_config = example({"items": [_EVENT], "next": 812, "archived": 0, "missing": []})

    items: list[AuditEvent]
    next: int | str | None
    archived: Count = Field(
        description="Number of matching sessions whose chains are archived, so that they were not "
        f"searched; at most {MOST_ARCHIVED} are counted."
    )
    missing: Missing = []


class AuditStats(Model):
    """Counts over a chain; events without a decision are not counted by decision."""

    model_config = example(
        {
            "total_operations": 3,
            "operation_counts": {"session.create": 1, "command.start": 1, "command.exit": 1},
            "decisions": {"allow": 2},
            "total_tokens": 0,
        }
    )

    total_operations: Count
    operation_counts: dict[str, int]
    decisions: dict[str, int]
    total_tokens: Count


class IndexProgress(Model):
    """How far the search index is: the last event that it has, and the last one of the ledger."""

    model_config = example({"position": 500, "end": 1200})

    position: Count = Field(description="The id of the last indexed event; 0: none.")
    end: Count = Field(description="The id of the ledger's last event.")


class AuditVerdict(Model):
    """Whether a chain is intact.

    `index` (from 0) and `reason` describe the first event that differs from the record; `seq` and
    `hash` are those of the last event before it, which is the head if all are intact.
    """

    model_config = example(
        {"ok": True, "index": None, "reason": None, "seq": 2, "hash": _EVENT["hash"]}
    )

    ok: bool
    index: Count | None
    reason: str | None
    seq: Count
    hash: Sha256


class ReindexBody(Body):
    """`after` is the `position` of an earlier answer: nothing is begun, progress is awaited."""

    after: Annotated[int, Field(ge=0, le=2**53 - 1)] | None = None


class EventsQuery(Query):
    """The position of the last event received: its `seq`."""

    after: Whole | None = None


class AllEventsQuery(Query):
    """The position of the last event received: its `id`, or in a cluster the stream's."""

    after: WholePosition | None = None


class AuditQuery(IncarnationQuery):
    """Filters over a session's events."""

    after: Whole = 0
    limit: PageSize = 100
    turn: Whole | None = None
    operation: Annotated[str, Field(max_length=64)] | None = None
    decision: Literal["allow", "deny", "pending"] | None = None


class SearchQuery(SessionFilter):
    """Conditions of a search over all sessions; a missing one matches everything.

    `text` is searched in the whole event, ignoring the case of ASCII letters; `from` and `to` are
    times, both inclusive; `cursor` is the `next` of the previous page.
    """

    owner: Annotated[str, Field(max_length=128)] | None = None
    operation: Annotated[str, Field(max_length=64)] | None = None
    decision: Literal["allow", "deny", "pending"] | None = None
    rule: Annotated[str, Field(max_length=256)] | None = None
    actor: Annotated[str, Field(max_length=256)] | None = None
    text: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    since: Moment | None = Field(default=None, alias="from")
    until: Moment | None = Field(default=None, alias="to")
    limit: PageSize = 100
    cursor: PositivePosition | None = None


class DenialGroup(Model):
    """Denials of one operation by one rule in one session."""

    session_id: str | None
    incarnation: Count | None
    operation: str
    rule: str | None
    times: Count
    latest: AuditEvent = Field(description="The latest of them.")


class DeniedMost(Model):
    """Groups of denials, the largest first."""

    model_config = example(
        {
            "items": [
                {
                    "session_id": "sess-4f1c0a9be27d3586",
                    "incarnation": 1,
                    "operation": "command.start",
                    "rule": "command-allowlist",
                    "times": 12,
                    "latest": _EVENT | {"decision": "deny", "rule": "command-allowlist"},
                }
            ],
            "next": None,
            "missing": [],
        }
    )

    items: list[DenialGroup]
    next: None
    missing: Missing = []


class DenialsQuery(Query):
    """`from` is a time: only denials since then are counted."""

    since: Moment | None = Field(default=None, alias="from")


class ExportQuery(IncarnationQuery):
    """The only format is one JSON text per line."""

    format: Literal["jsonl"] = "jsonl"


class VerifyQuery(IncarnationQuery):
    """A position in the chain that was noted before: both members or neither."""

    seq: Whole | None = None
    hash: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$", max_length=64)] | None = None
