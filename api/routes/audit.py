"""A session's audit chain: query, count, export, verify."""

from dataclasses import asdict
from datetime import timedelta

from aiohttp import web

from api import stream
from api.call import Call, reply
from api.queries import (
    ArchivesQuery,
    AuditQuery,
    ExportQuery,
    IncarnationQuery,
    SearchQuery,
    VerifyQuery,
)
from api.schemas import ArchiveBody
from orchestrator.audit import query as audit
from orchestrator.audit.search import Search
from orchestrator.audit.search import search as audit_search
from orchestrator.audit.verify import verify as verify_chain
from orchestrator.errors import PermissionDeniedError
from orchestrator.keys import Role


async def search_all(call: Call, query: SearchQuery) -> web.Response:
    """Events of all sessions of the caller, newest first; `next` is the next page's `cursor`.

    A page may have fewer events than `limit`, or none, although there are more: go on until
    `next` is null. Session, rule, actor, operation, and decisions to deny have indexes; times and
    owners, too, where there are not more than 50,000 events of them. Everything else, such as
    `text`, is looked for in what those leave, at most 50,000 events for a page. Archived chains
    are not searched: `archived` counts them.
    """
    wanted = Search(
        session=query.session,
        incarnation=query.incarnation,
        owner=query.owner,
        visible_to=call.principal.sees_owner,
        operation=query.operation,
        decision=query.decision,
        rule=query.rule,
        actor=query.actor,
        text=query.text,
        since=query.since,
        until=query.until,
    )
    found = await audit_search(call.plane.database, wanted, query.cursor, query.limit)
    return reply({"items": found.items, "next": found.next, "archived": found.archived})


async def search(call: Call, query: AuditQuery) -> web.Response:
    """Events in order, filtered; `next` is the `after` of the next page.

    A page may have fewer events than `limit`, or none, although there are more: go on until `next`
    is null. With several filters, and for `pending`, one page looks at no more than 10,000 events.
    """
    database, key = call.plane.database, await _key(call, query)
    number = {"incarnation": await audit.incarnation(database, key)}
    found = await audit.page(
        database,
        key,
        after_seq=query.after,
        limit=query.limit,
        turn=query.turn,
        operation=query.operation,
        decision=query.decision,
    )
    items = [number | event for event in found.items]
    return reply({"items": items, "next": found.next})


async def stats(call: Call, query: IncarnationQuery) -> web.Response:
    """How many operations and decisions of each kind."""
    return reply(await audit.stats(call.plane.database, await _key(call, query)))


async def export(call: Call, query: ExportQuery) -> web.StreamResponse:
    """The whole chain as it is now, one JSON text per line, as its hashes were made."""
    key = await _key(call, query)
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl; charset=utf-8"})
    with call.streaming("downloads"):
        await stream.begin(call.request, response)
        async for line in audit.export(call.plane.database, key):
            await stream.write(call.request, response, line.encode())
        await response.write_eof()
    return response


async def verify(call: Call, query: VerifyQuery) -> web.Response:
    """Recomputes the whole chain; with `seq` and `hash` it must also have that event."""
    verdict = await verify_chain(
        call.plane.database, await _key(call, query), seq=query.seq, hash=query.hash
    )
    return reply(asdict(verdict))


async def archive(call: Call, body: ArchiveBody) -> web.Response:
    """Moves chains of sessions that ended longer ago into compressed files, oldest first.

    With each go its approvals and the evidence of its terminals. The head of the chain and the
    digest of the file are put on record before anything is deleted. Admins' keys may.
    """
    _check_admin(call)
    seconds = timedelta(seconds=body.older_than)
    run = await call.plane.archiving.run(seconds, call.principal.name)
    items = [archived.public() for archived in run.archived]
    return reply({"items": items, "refused": run.refused, "more": run.more})


async def archives(call: Call, query: ArchivesQuery) -> web.Response:
    """Which chains are archived, where, and with which heads. Admins' keys may."""
    _check_admin(call)
    found = await call.plane.archiving.page(query.after, query.limit)
    full = len(found) == query.limit
    items = [archived.public() for archived in found]
    return reply({"items": items, "next": found[-1].session_key if full else None})


def _check_admin(call: Call) -> None:
    if call.principal.role is not Role.ADMIN:
        raise PermissionDeniedError("archives are the operator's: this needs an admin's key")


async def _key(call: Call, query: IncarnationQuery) -> str:
    """The chain of the session in the path: it outlives the session's record."""
    return await call.record_key(call.session_id, query.incarnation)
