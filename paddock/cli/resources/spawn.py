"""Spawning: a child of a session, or a message to a model in one."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, OptionalLevel, SessionId, example
from paddock.cli.output import (
    complain,
    note,
    working,
)
from paddock.cli.resources.budgets import Amounts, amounts
from paddock.cli.resources.inspection import print_new
from paddock.cli.resources.runs import ModelName, MostTicks, RunView, message_of
from paddock.cli.resources.session_policies import Policy, policy_of

if TYPE_CHECKING:
    from paddock.client import Paddock, Session, SpawnEnd


class _Wanted(NamedTuple):
    """What both ways of spawning take."""

    label: str | None
    workspace: str | None
    permission_level: str | None
    budget: Mapping[str, int | float] | None
    policy: str | Mapping[str, Any] | None


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("paddock spawn web-1 --label reader --workspace read-only"))(spawn)


@remote
async def spawn(
    paddock: "Paddock",
    session: SessionId,
    text: Annotated[
        str | None,
        typer.Argument(metavar="[TEXT]", help="A message for a model in it; - is the input."),
    ] = None,
    label: Annotated[
        str | None, typer.Option("--label", metavar="TEXT", help="Your name for the child.")
    ] = None,
    workspace: Annotated[
        str | None,
        typer.Option(metavar="own|read-only", help="A new one, or its parent's: by default own."),
    ] = None,
    level: OptionalLevel = None,
    budget: Amounts = None,
    policy: Policy = None,
    model: ModelName = None,
    max_ticks: MostTicks = None,
    as_json: AsJson = False,
) -> int:
    """Spawn a child of a session, with at most what the session has.

    Without TEXT, it lives until it is closed or its parent ends. With TEXT, a model runs in it and
    is shown as `send` shows it, and then it is closed; the exit status is 1 if the run fails.
    """
    parent = await paddock.sessions.get(session)
    wanted = _Wanted(label, workspace, level, amounts(budget), policy_of(policy))
    if text is not None:
        return await _run(parent, wanted, message_of(text), model, max_ticks, as_json=as_json)
    if model is not None or max_ticks is not None:
        raise Failure("--model and --max-ticks need a TEXT", status=Status.USAGE)
    with working("starting a sandbox"):
        child = await parent.spawn(**wanted._asdict())
    print_new(child, as_json)
    return Status.OK


async def _run(
    parent: "Session",
    wanted: _Wanted,
    message: str,
    model: str | None,
    max_ticks: int | None,
    *,
    as_json: bool,
) -> int:
    """Runs a model in a child, shows it, and returns the exit status."""
    from paddock.client import SpawnEnd

    ended: SpawnEnd | None = None
    shown = RunView(depth=1)
    stream = parent.spawn_stream(message, model=model, max_ticks=max_ticks, **wanted._asdict())
    async for event in shown.followed(stream, as_json):
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
