"""Proposals of a session: look at them, commit them, discard them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from paddock.cli.connection import remote
from paddock.cli.options import AsJson, SessionId, example, group
from paddock.cli.output import note, print_done, print_json, print_line

if TYPE_CHECKING:
    from paddock.client import Paddock
    from paddock.client.faces import Async
    from paddock.client.session import Session
    from paddock.contract.proposals import Proposal, Proposals

_STYLES = {"+": "green", "-": "red", "@": "cyan"}


class _Commands(TyperGroup):
    """Takes the session before the command, too; without a command, it shows what is staged."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Puts the command first."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            session, *rest = args
            command = rest.pop(0) if rest and rest[0] in self.commands else "show"
            args = [command, session, *rest]
        return super().parse_args(ctx, args)


app = group("What a session staged: look at it, commit it, discard it.", _Commands)


@app.command(epilog=example("paddock proposals show web-1"))
@remote
async def show(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """Show what a session staged, as diffs."""
    await _show(await paddock.sessions.get(session), as_json=as_json)


@app.command(epilog=example("paddock proposals commit web-1 src"))
@remote
async def commit(
    paddock: "Paddock",
    session: SessionId,
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH", help="Commit only these, and what is below them."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Commit what a session staged to its workspace, as a whole or not at all.

    Nothing may run in the session.
    """
    await _commit(await paddock.sessions.get(session), paths, as_json=as_json)


@app.command(epilog=example("paddock proposals rollback web-1"))
@remote
async def rollback(paddock: "Paddock", session: SessionId, as_json: AsJson = False) -> None:
    """Discard what a session staged. Nothing may run in the session."""
    done = await (await paddock.sessions.get(session)).proposals.rollback()
    print_done(done, as_json, f"discarded {done.write} writes, {done.delete} deletions")


async def _show(session: "Session[Async]", *, as_json: bool) -> None:
    after: str | None = ""
    while after is not None:
        page = await session.proposals.list(after=after)
        after = page.next
        if as_json:
            print_json(page.raw)
            continue
        for item in page.items:
            _print_item(item)
        if after is None:
            _print_rest(page)


async def _commit(session: "Session[Async]", paths: list[str] | None, *, as_json: bool) -> None:
    from paddock.client.errors import ConflictError

    try:
        done = await session.proposals.commit(paths=paths or None)
    except ConflictError as error:
        if not as_json:
            _print_problems(error.fields.get("conflicts"), "changed meanwhile")
            _print_problems(error.fields.get("refused"), "refused")
        raise
    print_done(done, as_json, f"committed {done.write} writes, {done.delete} deletions")


def _print_item(item: "Proposal") -> None:
    print_line((item.type, "red" if item.type == "delete" else "green"), (_headline(item), "bold"))
    for line in (item.diff or "").splitlines():
        print_line((line, _STYLES.get(line[:1], "")))
    if item.diff_truncated:
        note("  (not all of the difference is shown)")
    if item.base_changed:
        note("  (the workspace was changed there meanwhile: this is a conflict)")


def _headline(item: "Proposal") -> str:
    parts = [f" {item.ref}"]
    if item.kind != "file":
        parts.append(item.kind)
    if item.removes:
        parts.append(f"removes {item.removes} entries")
    if item.mode and item.old_mode and item.mode != item.old_mode and item.kind != "symlink":
        parts.append(f"{item.old_mode} to {item.mode}")
    if item.renamed_from:
        parts.append(f"renamed from {item.renamed_from}")
    if item.binary:
        parts.append(f"binary, {item.size} bytes")
    return "  ".join(parts)


def _print_rest(page: "Proposals") -> None:
    _print_problems([each.raw for each in page.refused], "refused")
    counts = page.counts
    note(f"{counts.write} writes, {counts.delete} deletions, {counts.refused} refused")


def _print_problems(found: object, what: str) -> None:
    for each in found if isinstance(found, Sequence) else ():
        if isinstance(each, dict):
            reason = each.get("reason", "")
            print_line((f"{what} ", "yellow"), (f"{each.get('ref')}  {reason}", ""))
