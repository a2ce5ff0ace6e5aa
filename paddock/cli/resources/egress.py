"""What a session may reach: its rules, what was denied, and changes of both."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.egress_rules import rule_of, rule_text, rules_text
from paddock.cli.exits import Failure, Status
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, SessionId, example, group
from paddock.cli.output import age, note, print_fields, print_json, size

if TYPE_CHECKING:
    from paddock.client import Paddock, SessionEgress

app = group("What a session may reach through its way out.")

_Places = Annotated[
    list[str] | None,
    typer.Argument(metavar="[HOST[:PORT]]...", help="Hosts, *.domain, or networks."),
]
_Methods = Annotated[
    list[str] | None, typer.Option("--method", metavar="METHOD", help="Only this method.")
]
_Paths = Annotated[
    list[str] | None, typer.Option("--path", metavar="GLOB", help="Only these paths.")
]
_Programs = Annotated[
    list[str] | None, typer.Option("--program", metavar="NAME", help="Only this program.")
]


@app.command(epilog=example("paddock egress show web-1"))
@remote
async def show(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """Show what a session may reach, and what it has used."""
    _show(await (await paddock.sessions.get(session)).egress.get(), as_json=as_json)


@app.command(epilog=example("paddock egress drafts web-1"))
@remote
@lists
async def drafts(paddock: "Paddock", session: SessionId, listing: Listing = TABLE) -> None:
    """List what a session was denied, with the rules that would allow it."""
    found = await (await paddock.sessions.get(session)).egress.drafts()
    if listing.json:
        print_json(found.raw)
        return
    columns = (
        ">draft",
        "host",
        "request",
        "program",
        ">count",
        ">age",
        "denied by",
        "would be allowed by",
    )
    print_items(
        found.items,
        listing,
        columns,
        lambda draft: (
            draft.number,
            f"{draft.host}:{draft.port}",
            f"{draft.method} {draft.path or ''}",
            draft.program,
            draft.count,
            age(draft.last_seen),
            draft.rule,
            draft.reason if draft.proposal is None else rule_text(draft.proposal),
        ),
        nothing="nothing was denied",
    )
    if found.others:
        note(f"{found.others} more denied requests are not listed")


@app.command(epilog=example("paddock egress allow web-1 pypi.org files.example:8443"))
@remote
async def allow(
    paddock: "Paddock",
    session: SessionId,
    places: _Places = None,
    method: _Methods = None,
    path: _Paths = None,
    program: _Programs = None,
    draft: Annotated[
        list[int] | None,
        typer.Option("--draft", min=1, metavar="N", help="The rule that this draft proposes."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Allow hosts to a session, from its next request on; at ports 80 and 443 by default.

    What its level does not allow needs an admin's key.
    """
    rules = [rule_of(place, method, path, program) for place in places or ()]
    if not rules and not draft:
        raise Failure("missing argument 'HOST' or --draft", status=Status.USAGE)
    found = await paddock.sessions.get(session)
    _show(await found.egress.add(allow=rules, drafts=draft or ()), as_json=as_json)


@app.command(epilog=example("paddock egress deny web-1 tracker.example"))
@remote
async def deny(
    paddock: "Paddock",
    session: SessionId,
    places: Annotated[
        list[str],
        typer.Argument(metavar="HOST[:PORT]...", help="Hosts, *.domain, or networks."),
    ],
    method: _Methods = None,
    path: _Paths = None,
    program: _Programs = None,
    as_json: AsJson = False,
) -> None:
    """Deny hosts to a session, from now on; at every port by default.

    Connections to them are ended.
    """
    rules = [rule_of(place, method, path, program) for place in places]
    found = await paddock.sessions.get(session)
    _show(await found.egress.add(deny=rules), as_json=as_json)


def _show(found: "SessionEgress", *, as_json: bool) -> None:
    if as_json:
        print_json(found.raw)
        return
    used, only = found.used, found.only
    narrowed = None if only.allow is None else rules_text(only.allow) or "nothing"
    print_fields(
        (
            ("network", found.network),
            ("level allows", rules_text(found.level.allow)),
            ("level denies", rules_text(found.level.deny)),
            ("also allowed", rules_text(found.also.allow)),
            ("also denied", rules_text(found.also.deny)),
            ("only allowed", narrowed),
            ("owner denies", rules_text(only.deny)),
            ("requests", f"{used.allowed} allowed, {used.denied} denied"),
            ("bytes", f"{size(used.sent)} sent, {size(used.received)} received"),
            ("open", used.connections),
            ("key today", f"{size(found.key.bytes_today)}{_of(found.key.max_bytes_per_day)}"),
        )
    )


def _of(limit: int | None) -> str:
    return "" if limit is None else f" of {size(limit)}"
