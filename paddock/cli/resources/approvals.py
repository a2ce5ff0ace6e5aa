"""Approvals: requests that wait for a person, and the decisions."""

from contextlib import aclosing
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.listing import TABLE, Listing, lists, print_items
from paddock.cli.options import AsJson, Incarnation, JsonLines, example, group
from paddock.cli.output import (
    STYLES,
    age,
    note,
    print_json,
    print_json_line,
    print_line,
)

if TYPE_CHECKING:
    from paddock.client import Approval, Paddock

app = group("Commands of tools that wait for a person's approval.")


class ApprovalStatus(StrEnum):
    """The status of an approval."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"


_Id = Annotated[str, typer.Argument(metavar="APPROVAL", help="The approval's id.")]
_Reason = Annotated[
    str | None,
    typer.Option("--reason", "-r", metavar="TEXT", help="The reason, which is recorded."),
]


@app.command("list", epilog=example("paddock approvals list"))
@remote
@lists
async def list_all(
    paddock: "Paddock",
    status: Annotated[
        ApprovalStatus | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only approvals with this status: pending, approved, …",
        ),
    ] = None,
    session: Annotated[
        str | None, typer.Option(metavar="SESSION", help="Only approvals of this session.")
    ] = None,
    incarnation: Incarnation = None,
    listing: Listing = TABLE,
) -> None:
    """List approvals, newest first: pending and decided ones."""
    approvals = await paddock.approvals.list(
        status=status, session=session, incarnation=incarnation
    )
    print_items(
        approvals,
        listing,
        ("approval", "status", "age", "session", "tool", "risk", "command"),
        lambda approval: (
            approval.id,
            _status(approval),
            age(approval.requested_at),
            approval.session_id,
            approval.tool,
            approval.risk_tier,
            approval.command,
        ),
        nothing="nothing waits for an approval",
    )


@app.command(epilog=example("paddock approvals watch"))
@remote
async def watch(
    paddock: "Paddock",
    as_json: JsonLines = False,
) -> None:
    """Show approvals as they are requested, until Ctrl-C."""
    if not as_json:
        note("waiting for commands that need an approval; Ctrl-C ends it")
    async with aclosing(paddock.approvals.watch()) as coming:
        async for approval in coming:
            if as_json:
                print_json_line(approval.raw)
            else:
                print_line(*_line(approval))


@app.command(epilog=example("paddock approvals approve apr-7d2b9e64c1f3a058"))
@remote
async def approve(
    paddock: "Paddock", approval: _Id, reason: _Reason = None, as_json: AsJson = False
) -> None:
    """Approve a command: exactly the text that is shown, once."""
    _show(await paddock.approvals.approve(approval, reason=reason), as_json=as_json)


@app.command(epilog=example("paddock approvals deny apr-7d2b9e64c1f3a058 --reason in-use"))
@remote
async def deny(
    paddock: "Paddock", approval: _Id, reason: _Reason = None, as_json: AsJson = False
) -> None:
    """Deny a command."""
    _show(await paddock.approvals.deny(approval, reason=reason), as_json=as_json)


def _show(approval: "Approval", *, as_json: bool) -> None:
    if as_json:
        print_json(approval.raw)
    else:
        print_line((f"{_status(approval)}  ", STYLES.get(approval.status, "")), *_line(approval))


def _status(approval: "Approval") -> str:
    """The status, and how many of several approvers have approved."""
    if approval.approvers == 1:
        return str(approval.status)
    return f"{approval.status}, {len(approval.approved_by)} of {approval.approvers}"


def _line(approval: "Approval") -> list[tuple[str, str]]:
    return [
        (f"{approval.id}  ", "bold"),
        (f"{approval.session_id}  ", "cyan"),
        (f"{approval.tool}  ", ""),
        (f"{approval.risk_tier}  ", STYLES.get(approval.risk_tier, "")),
        (approval.command, "bold"),
        *((f"  {path} {digest}", "dim") for path, digest in approval.files.items()),
    ]
