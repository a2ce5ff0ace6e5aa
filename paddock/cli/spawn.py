"""Spawning: a child of a session, or a message to a model in one."""

import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.budgets import Amounts, amounts
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, OptionalLevel, SessionId, example
from paddock.cli.remote import remote
from paddock.cli.runs import RunView
from paddock.cli.session_policies import Policy, policy_of
from paddock.cli.terminal import (
    complain,
    note,
    print_fields,
    print_json,
    print_json_line,
    working,
)

if TYPE_CHECKING:
    from paddock.client import Paddock, SpawnEnd


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example('paddock spawn web-1 "What is in src?" --workspace read-only'))(
        spawn
    )


@remote
async def spawn(
    paddock: "Paddock",
    session: SessionId,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="A message for a model in it; - is the input."),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help="Your name of the child.")
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(metavar="own|read-only", help="A new one, or its parent's: by default own."),
    ] = None,
    level: OptionalLevel = None,
    budget: Amounts = None,
    policy: Policy = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="NAME", help="The model; by default the first one."),
    ] = None,
    max_ticks: Annotated[
        int | None,
        typer.Option("--max-ticks", min=1, max=100, metavar="N", help="The most calls of it."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Spawn a child of a session, with at most what the session has.

    Without TEXT, it lives until it is closed or its parent ends. With TEXT, a model runs in it and
    is shown as `send` shows it, and then it is closed; the exit status is 1 if the run fails.
    """
    from paddock.client import SpawnEnd

    parent = await paddock.sessions.get(session)
    limits, rules = amounts(budget), policy_of(policy)
    if text is None:
        if model is not None or max_ticks is not None:
            raise Failure("--model and --max-ticks need a TEXT", status=Status.USAGE)
        with working("starting a sandbox"):
            child = await parent.spawn(
                label=label,
                workspace=workspace,
                permission_level=level,
                budget=limits,
                policy=rules,
            )
        if as_json:
            print_json({**child.info.raw, "handle": child.handle})
        else:
            print_fields(
                (
                    ("session", child.id),
                    ("level", child.info.permission_level),
                    ("handle", child.handle),
                )
            )
        return Status.OK
    message = sys.stdin.read() if text == "-" else text
    if not message:
        raise Failure("the message is empty", status=Status.USAGE)
    stream = parent.spawn_stream(
        message,
        label=label,
        workspace=workspace,
        permission_level=level,
        budget=limits,
        policy=rules,
        model=model,
        max_ticks=max_ticks,
    )
    ended: SpawnEnd | None = None
    shown = RunView(depth=1)
    async with aclosing(stream) as events:
        async for event in events:
            if as_json:
                print_json_line(event.raw)
            else:
                shown.show(event)
            if isinstance(event, SpawnEnd) and not event.spawn_path:
                ended = event
    return _end(ended, as_json=as_json)


def _end(ended: "SpawnEnd | None", *, as_json: bool) -> int:
    """Shows the end of the run, and returns the exit status."""
    if ended is None:
        return Status.FAILED
    if not as_json:
        if ended.is_error:
            complain(ended.error or "the run has failed")
        note(f"{ended.child_session_id}: {ended.tokens_used} tokens")
    return Status.FAILED if ended.is_error else Status.OK
