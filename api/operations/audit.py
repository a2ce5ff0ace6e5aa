"""The audit ledger: live, by query, whole, and verified."""

from api.auth import Access
from api.operations.base import SESSION, Events, Operation, ok
from api.queries import (
    ArchivesQuery,
    AuditQuery,
    EventsQuery,
    ExportQuery,
    IncarnationQuery,
    SearchQuery,
    VerifyQuery,
)
from api.routes import audit, events
from api.schemas import ArchiveBody
from paddock.contract.audit import (
    ArchiveRun,
    Archives,
    AuditEvent,
    AuditEvents,
    AuditStats,
    AuditVerdict,
    FoundEvents,
)

_TAG = "Audit"
_AUDIT = SESSION + "/audit"


def _events(position: str) -> Events:
    return Events({"": AuditEvent}, position)


OPERATIONS = (
    Operation(
        "GET",
        SESSION + "/events",
        events.of_session,
        Access.READ,
        query=EventsQuery,
        id="follow_session",
        tag=_TAG,
        summary="Follow a session's events",
        replies=ok("The events as they happen.", events=_events("the event's `seq`")),
    ),
    Operation(
        "GET",
        "/api/events",
        events.of_all,
        Access.READ_ALL,
        query=EventsQuery,
        id="follow_all",
        tag=_TAG,
        summary="Follow the events of all sessions",
        replies=ok("The events as they happen.", events=_events("the event's `id`")),
    ),
    Operation(
        "GET",
        "/api/audit",
        audit.search_all,
        Access.READ_ALL,
        query=SearchQuery,
        id="search_all_audit",
        tag=_TAG,
        summary="Search the events of all sessions",
        replies=ok("A page of events, newest first.", FoundEvents),
    ),
    Operation(
        "GET",
        _AUDIT,
        audit.search,
        Access.READ,
        query=AuditQuery,
        id="search_audit",
        tag=_TAG,
        summary="Search a session's events",
        replies=ok("A page of events.", AuditEvents),
    ),
    Operation(
        "GET",
        _AUDIT + "/stats",
        audit.stats,
        Access.READ,
        query=IncarnationQuery,
        id="count_audit",
        tag=_TAG,
        summary="Count a session's events",
        replies=ok("The counts.", AuditStats),
    ),
    Operation(
        "GET",
        _AUDIT + "/export",
        audit.export,
        Access.READ,
        query=ExportQuery,
        id="export_audit",
        tag=_TAG,
        summary="Export a session's chain",
        replies=ok("One event on each line.", AuditEvent, media_type="application/jsonl"),
    ),
    Operation(
        "GET",
        _AUDIT + "/verify",
        audit.verify,
        Access.READ,
        query=VerifyQuery,
        id="verify_audit",
        tag=_TAG,
        summary="Verify a session's chain",
        replies=ok("The verdict.", AuditVerdict),
    ),
    Operation(
        "POST",
        "/api/audit/archives",
        audit.archive,
        Access.MANAGE,
        body=ArchiveBody,
        id="archive_audit",
        tag=_TAG,
        summary="Archive chains of sessions that ended",
        replies=ok("What was archived.", ArchiveRun),
        examples={"a month": {"older_than": 2_592_000}},
    ),
    Operation(
        "GET",
        "/api/audit/archives",
        audit.archives,
        Access.MANAGE,
        query=ArchivesQuery,
        id="list_archives",
        tag=_TAG,
        summary="List archived chains",
        replies=ok("A page of archives.", Archives),
    ),
)
