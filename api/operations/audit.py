"""The audit ledger: search, export, verification and archives."""

from contextlib import ExitStack
from dataclasses import asdict
from datetime import timedelta

from api.shape.access import Access
from api.shape.answers import Lines
from api.shape.context import Context
from api.shape.operation import SESSION, operation
from orchestrator.ground.store.database import Database
from orchestrator.record.audit import query as chains
from orchestrator.record.audit.archiving import Archiving
from orchestrator.record.audit.denials import MOST_EXAMINED, grouped
from orchestrator.record.audit.verifier import Verifier
from orchestrator.record.search_index.search import Search, search
from orchestrator.record.search_index.search_index import SearchIndex
from orchestrator.settings.settings import Settings
from paddock.audit.chain import Event
from paddock.contract.archives import Archive, ArchiveBody, ArchiveRun, Archives, ArchivesQuery
from paddock.contract.audit import (
    AgentPosition,
    AuditEvent,
    AuditEvents,
    AuditQuery,
    AuditStats,
    AuditVerdict,
    DenialGroup,
    DenialsQuery,
    DeniedMost,
    ExportQuery,
    FoundEvents,
    IndexProgress,
    ReindexBody,
    SearchQuery,
    VerifyQuery,
)
from paddock.contract.requests import IncarnationQuery

_TAG = "Audit"
_AUDIT = SESSION + "/audit"


@operation(
    "GET",
    "/api/audit",
    Access.READ_ALL,
    tag=_TAG,
    summary="Search the events of all sessions",
    answers="A page of events, newest first.",
)
async def search_all_audit(
    context: Context, search_index: SearchIndex, query: SearchQuery
) -> FoundEvents:
    """Events of all sessions of the caller, newest first; `next` is the next page's `cursor`.

    A page may have fewer events than `limit`, or none, although there are more: continue until
    `next` is null. The rarest of session, owner, rule, actor, operation and decision selects the
    events that are examined, and so do the times; other conditions, such as `text`, are checked on
    these, at most 50,000 per page. Archived chains are not searched: `archived` counts them.
    """
    wanted = Search(
        session=query.session,
        incarnation=query.incarnation,
        owner=query.owner,
        # Whoever searches for words finds out what events contain.
        visible_to=context.principal.sees_owner
        or (None if query.text is None else context.whole_for),
        whole_for=context.whole_for,
        operation=query.operation,
        decision=query.decision,
        rule=query.rule,
        actor=query.actor,
        text=query.text,
        since=query.since,
        until=query.until,
    )
    found = await search(search_index, wanted, query.cursor, query.limit)
    items = [_recorded(event) for event in found.items]
    return FoundEvents(items=items, next=found.next, archived=found.archived, missing=[])


@operation(
    "GET",
    "/api/audit/denials",
    Access.READ_ALL,
    tag=_TAG,
    summary="Show what was denied most",
    answers="The largest groups of denials.",
)
async def count_denials(
    context: Context, search_index: SearchIndex, query: DenialsQuery
) -> DeniedMost:
    """The latest 1,000 denials in the caller's sessions, by session, operation and rule."""
    wanted = Search(
        visible_to=context.principal.sees_owner,
        whole_for=context.whole_for,
        decision="deny",
        since=query.since,
    )
    found = await search(search_index, wanted, limit=MOST_EXAMINED)
    items = [
        DenialGroup(
            session_id=group.latest["session_id"],
            incarnation=group.latest["incarnation"],
            operation=group.latest["operation"],
            rule=group.latest["rule"],
            times=group.times,
            latest=_recorded(group.latest),
        )
        for group in grouped(found.items)
    ]
    return DeniedMost(items=items, next=None)


@operation(
    "GET",
    _AUDIT,
    Access.READ,
    tag=_TAG,
    summary="Search a session's events",
    answers="A page of events.",
)
async def search_audit(context: Context, database: Database, query: AuditQuery) -> AuditEvents:
    """Events in order, filtered; `next` is the `after` of the next page.

    A page may have fewer events than `limit`, or none, although there are more: continue until
    `next` is null. With several filters, for `pending`, and for `command.exit`, one page examines
    at most 10,000 events.
    """
    key = await _key(context, query)
    number: Event = {"incarnation": await chains.incarnation(database, key)}
    found = await chains.page(
        database,
        key,
        after_seq=query.after,
        limit=query.limit,
        turn=query.turn,
        operation=query.operation,
        decision=query.decision,
    )
    items = [_recorded(number | event) for event in found.items]
    return AuditEvents(items=items, next=found.next)


@operation(
    "GET",
    _AUDIT + "/stats",
    Access.READ,
    tag=_TAG,
    summary="Count a session's events",
    answers="The counts.",
)
async def count_audit(context: Context, database: Database, query: IncarnationQuery) -> AuditStats:
    """Numbers of events by operation and by decision."""
    counts = await chains.stats(database, await _key(context, query))
    return AuditStats.model_validate(counts._asdict())


@operation(
    "GET",
    _AUDIT + "/export",
    Access.READ,
    tag=_TAG,
    summary="Export a session's chain",
    answers="One event per line.",
)
async def export_audit(
    context: Context, database: Database, query: ExportQuery
) -> Lines[AuditEvent]:
    """The whole chain in its current state, one JSON text per line, exactly as it was hashed."""
    key = await _key(context, query)
    with ExitStack() as held:
        held.enter_context(context.streaming("downloads"))
        return Lines(chains.export(database, key), held.pop_all())


@operation(
    "GET",
    _AUDIT + "/verify",
    Access.READ,
    tag=_TAG,
    summary="Verify a session's chain",
    answers="The verdict.",
)
async def verify_audit(context: Context, verifier: Verifier, query: VerifyQuery) -> AuditVerdict:
    """Recomputes the whole chain; with `seq` and `hash`, the chain must also contain that event."""
    key = await _key(context, query)
    verdict = await verifier.verify(key, seq=query.seq, hash=query.hash)
    return AuditVerdict(**asdict(verdict))


@operation(
    "POST",
    "/api/audit/archives",
    Access.ADMIN,
    tag=_TAG,
    summary="Archive chains of sessions that ended",
    answers="The archived chains.",
    examples={"a month": {"older_than": 2_592_000}},
)
async def archive_audit(
    context: Context, archiving: Archiving, settings: Settings, body: ArchiveBody
) -> ArchiveRun:
    """Moves chains of sessions that ended longer ago into compressed files, oldest first.

    Each chain moves together with its approvals and the evidence of its terminals. The head of the
    chain and the digest of the file are recorded before anything is deleted. Only admins' keys may
    do this.
    """
    seconds = timedelta(seconds=body.older_than)
    run = await archiving.run(seconds, context.principal.name)
    items = [Archive(node=settings.node, **archived.public()) for archived in run.archived]
    return ArchiveRun(items=items, refused=run.refused, more=run.more, missing=[])


@operation(
    "GET",
    "/api/audit/archives",
    Access.ADMIN,
    tag=_TAG,
    summary="List archived chains",
    answers="A page of archives.",
)
async def list_archives(
    context: Context, archiving: Archiving, settings: Settings, query: ArchivesQuery
) -> Archives:
    """The archived chains, their files and their heads. Only admins' keys may do this."""
    found = await archiving.page(query.after, query.limit)
    full = len(found) == query.limit
    items = [Archive(node=settings.node, **archived.public()) for archived in found]
    following = found[-1].session_key if full else None
    return Archives(items=items, next=following, missing=[])


@operation(
    "POST",
    "/api/audit/index",
    Access.ADMIN,
    tag=_TAG,
    summary="Make the search index again",
    answers="How far it is.",
    examples={"begin": {}, "follow": {"after": 500}},
)
async def reindex_audit(
    context: Context, search_index: SearchIndex, body: ReindexBody
) -> IndexProgress:
    """Removes the search index and begins to make it again from the ledger.

    With `after`, it begins nothing, and answers as soon as the index is further than that, or after
    a few seconds. Searches find everything meanwhile, but are slower. Only admins' keys may do
    this.
    """
    if body.after is None:
        return IndexProgress(**(await search_index.rebuild())._asdict())
    return IndexProgress(**(await search_index.progress(body.after))._asdict())


def _recorded(event: Event) -> AuditEvent:
    """A recorded event; events of earlier versions are not validated again."""
    agent = event["agent"]
    position = None if agent is None else AgentPosition.model_construct(**agent)
    return AuditEvent.model_construct(**event | {"agent": position})


async def _key(context: Context, query: IncarnationQuery) -> str:
    """The chain of the session in the path, which outlives the session itself."""
    return await context.record_key(context.session_id, query.incarnation)
