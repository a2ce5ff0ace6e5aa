"""A session's audit chain: list, count, export and verify it."""

import sys
from contextlib import aclosing, nullcontext
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import Connection, perhaps_remote, remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, Incarnation, JsonLines, SessionId, example, finite, group
from paddock.cli.output import (
    note,
    print_json,
    print_table,
    working,
)
from paddock.cli.resources.events import show

if TYPE_CHECKING:
    from paddock.client import Archive, Paddock

app = group("The audit chain of a session: everything that was done or refused.")

_Operation = Annotated[
    str | None, typer.Option(metavar="NAME", help="Such as command.start or file.write.")
]
_Decision = Annotated[str | None, typer.Option(metavar="DECISION", help="allow, deny or pending.")]
_Seq = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="The seq of an event that was noted earlier.")
]
_Hash = Annotated[
    str | None,
    typer.Option(metavar="SHA256", help="The hash of that event; the chain must contain it."),
]
_Time = Annotated[
    datetime | None,
    typer.Option(
        formats=["%Y-%m-%dT%H:%M:%S%z", "%Y-%m-%dT%H:%M:%S.%f%z"],
        metavar="TIME",
        help="Such as 2026-03-04T09:30:00Z.",
    ),
]
_NOT_SEARCHED = (
    "Archived chains that were not searched: {}. `paddock audit archives` lists them for an admin; "
    "`tar -xOzf FILE events.jsonl | grep TEXT` searches a file, and "
    "`paddock audit verify --archive FILE` verifies it."
)


@app.command(epilog=example("paddock audit search --decision deny --session web-1"))
@remote
async def search(
    paddock: "Paddock",
    session: Annotated[
        str | None, typer.Option(metavar="SESSION", help="Only events of this session.")
    ] = None,
    incarnation: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="The incarnation of the session id; by default all."),
    ] = None,
    owner: Annotated[
        str | None, typer.Option(metavar="KEY", help="Only events of this key's sessions.")
    ] = None,
    operation: _Operation = None,
    decision: _Decision = None,
    rule: Annotated[
        str | None, typer.Option(metavar="RULE", help="The rule that refused it.")
    ] = None,
    actor: Annotated[
        str | None, typer.Option(metavar="NAME", help="A key's name, or handle:SESSION.")
    ] = None,
    text: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A text anywhere in the event.")
    ] = None,
    since: _Time = None,
    until: _Time = None,
    limit: Annotated[int, typer.Option(min=1, metavar="N", help="Maximum number of events.")] = 100,
    as_json: JsonLines = False,
) -> None:
    """Search the events of all sessions, newest first, including sessions that ended long ago.

    Archived chains are not searched; a note at the end gives their number.
    """
    archived = [0]
    found = paddock.search(
        session=session,
        incarnation=incarnation,
        owner=owner,
        operation=operation,
        decision=decision,
        rule=rule,
        actor=actor,
        text=text,
        since=since,
        until=until,
        on_archived=archived.append,
    )
    await show(found, as_json=as_json, with_session=True, most=limit)
    if archived[-1]:
        number = "1000 or more" if archived[-1] == 1000 else archived[-1]
        note(_NOT_SEARCHED.format(number))


@app.command("list", epilog=example("paddock audit list web-1 --decision deny"))
@remote
async def list_all(
    paddock: "Paddock",
    session: SessionId,
    operation: _Operation = None,
    decision: _Decision = None,
    after: Annotated[
        int, typer.Option(min=0, metavar="SEQ", help="Only events after this one.")
    ] = 0,
    incarnation: Incarnation = None,
    as_json: JsonLines = False,
) -> None:
    """List a session's events, first to last, also of a session that ended long ago."""
    events = paddock.sessions.audit(session, incarnation=incarnation).events(
        after=after, operation=operation, decision=decision
    )
    await show(events, as_json=as_json, with_session=False)


@app.command(epilog=example("paddock audit stats web-1"))
@remote
async def stats(
    paddock: "Paddock",
    session: SessionId,
    incarnation: Incarnation = None,
    as_json: AsJson = False,
) -> None:
    """Count a session's events by operation and decision."""
    found = await paddock.sessions.audit(session, incarnation=incarnation).stats()
    if as_json:
        print_json(found.raw)
        return
    counts = sorted(found.operation_counts.items(), key=lambda item: (-item[1], item[0]))
    print_table(("operation", ">events"), counts, nothing="no events")
    decided = sorted(found.decisions.items())
    if decided:
        print_table(("decision", ">events"), decided, nothing="", title="Decisions")


@app.command(epilog=example("paddock audit export web-1 -o web-1.jsonl"))
@remote
async def export(
    paddock: "Paddock",
    session: SessionId,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write it to a file.")
    ] = None,
    incarnation: Incarnation = None,
) -> None:
    """Write a session's whole chain, one event per line, for `audit verify --file`."""
    count = 0
    target = nullcontext(sys.stdout) if output is None else output.open("w", encoding="utf-8")
    with target as file:
        chain = paddock.sessions.audit(session, incarnation=incarnation)
        async with aclosing(chain.export()) as lines:
            async for line in lines:
                file.write(line + "\n")
                count += 1
    if output is not None:
        note(f"{count} events written to {output}")


@app.command(epilog=example("paddock audit verify --file web-1.jsonl"))
@perhaps_remote
async def verify(
    connection: Connection,
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Verify this session's chain on the server."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="An exported chain; it is verified here."),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option("--archive", metavar="FILE", help="An archived chain; it is verified here."),
    ] = None,
    incarnation: Incarnation = None,
    seq: _Seq = None,
    hash: _Hash = None,
    anchor: Annotated[
        Path | None,
        typer.Option("--anchor", metavar="FILE", help="Anchored heads; the chain must have them."),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(metavar="HEX", help="The public key that must have signed the anchors."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Recompute a chain, and report whether it is intact.

    A changed, removed or reordered event is always detected. A cut-off end, or a chain that was
    rewritten completely, is detected with --seq and --hash of an event that was noted before, or
    with --anchor. With --anchor and a SESSION, every anchored session of that id must still exist;
    with --anchor alone, every anchored session (with an admin's key). The exit status is 1 if the
    chain is not intact, or if a session is gone.
    """
    from paddock.cli.resources.audit_verification import (
        Noted,
        show_verdict,
        verify_all,
        verify_archive,
        verify_file,
        verify_session,
    )

    given = [session, file, archive].count(None)
    if given < 2 or (given == 3 and anchor is None):
        raise Failure("give one of SESSION, --file FILE and --archive FILE", status=Status.USAGE)
    if (seq is None) != (hash is None) or (seq is not None and given == 3):
        raise Failure("--seq and --hash go together, and with a chain", status=Status.USAGE)
    if incarnation is not None and session is None and file is None:
        raise Failure("--incarnation goes with SESSION or --file", status=Status.USAGE)
    noted = Noted(seq, hash, anchor, public_key)
    with working("verifying"):
        if archive is not None:
            verdict = verify_archive(archive, noted)
        elif file is not None:
            verdict = verify_file(file, noted, incarnation)
        else:
            async with connection.open() as paddock:
                if session is None:
                    verdict = await verify_all(paddock, noted)
                elif anchor is None:
                    audit = paddock.sessions.audit(session, incarnation=incarnation)
                    verdict = (await audit.verify(seq=seq, hash=hash)).raw
                else:
                    verdict = await verify_session(paddock, session, incarnation, noted)
    if noted.anchors is not None and public_key is None and not as_json:
        note(f"The anchors are signed by {noted.anchors.public_key}: compare it, or give it.")
    for told in noted.notes:
        note(told)
    show_verdict(verdict, as_json)


@app.command(epilog=example("paddock audit archive --older-than 30"))
@remote
async def archive(
    paddock: "Paddock",
    older_than: Annotated[
        float,
        typer.Option(
            min=0.001,
            max=36_500,
            callback=finite,
            metavar="DAYS",
            help="Archive sessions that ended more than DAYS ago.",
        ),
    ] = 7,
    as_json: AsJson = False,
) -> None:
    """Move whole chains of ended sessions into compressed files, with approvals and evidence.

    The files are verified, and the heads of their chains recorded, before anything is deleted. They
    are in the control plane's archive directory, and can be verified alone: `paddock audit verify
    --archive FILE`. This needs an admin's key.
    """
    seconds = max(60, int(older_than * 86_400))
    done: list[Archive] = []
    refused: dict[str, str] = {}
    more = True
    with working("archiving"):
        while more:
            run = await paddock.archives.make(older_than=seconds)
            done += run.items
            refused |= run.refused
            more = run.more
    _show_archives(done, as_json, nothing="nothing to archive")
    for session, reason in refused.items():
        note(f"{session} is not archived: {reason}")
    if refused:
        raise typer.Exit(Status.FAILED)


@app.command(epilog=example("paddock audit archives"))
@remote
async def archives(paddock: "Paddock", as_json: AsJson = False) -> None:
    """List archived chains with their heads."""
    found = [archive async for archive in paddock.archives.list()]
    _show_archives(found, as_json, nothing="nothing is archived")


@app.command(epilog=example("paddock audit reindex"))
@remote
async def reindex(paddock: "Paddock", as_json: AsJson = False) -> None:
    """Make the search index again from the ledger, and show how far it is until it is complete.

    Nothing stops meanwhile: searches find everything, and are slower. The work continues if this
    command is interrupted. This needs an admin's key.
    """
    with working("indexing") as so_far:
        found = await paddock.reindex()
        end = found.end
        while found.position < end:
            so_far(f"{found.position} of {end} events")
            found = await paddock.reindex(after=found.position)
    if as_json:
        print_json(found.raw)
    else:
        note(f"{found.position} events are indexed")


def _show_archives(found: "list[Archive]", as_json: bool, *, nothing: str) -> None:
    if as_json:
        print_json([archive.raw for archive in found])
        return
    columns = ("session", "file", ">bytes", ">seq", "hash")
    rows = [(each.session_id, each.file, each.bytes, each.seq, each.hash) for each in found]
    print_table(columns, rows, nothing=nothing)
