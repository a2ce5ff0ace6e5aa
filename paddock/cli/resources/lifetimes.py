"""How long sessions live, and at which level: `settings` and `extend`."""

from typing import TYPE_CHECKING, Annotated

import typer

from paddock.cli.connection import remote
from paddock.cli.options import AsJson, OptionalLevel, SessionId, SessionIds, example
from paddock.cli.output import note, print_fields, print_json
from paddock.cli.several import each_of

if TYPE_CHECKING:
    from paddock.client import Paddock

_AN_HOUR = 3600


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(epilog=example("paddock settings web-1 --idle-timeout 600"))(settings)
    app.command(epilog=example("paddock extend web-1 --for 7200"))(extend)


@remote
async def settings(
    paddock: "Paddock",
    session: SessionId,
    level: OptionalLevel = None,
    idle_timeout: Annotated[
        int | None,
        typer.Option(min=1, metavar="SECONDS", help="Time without activity until it ends."),
    ] = None,
    wall_timeout: Annotated[
        int | None,
        typer.Option(min=1, metavar="SECONDS", help="Time from its creation until it ends."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show a session's level, time-outs and deadlines, or change them.

    Another level ends running commands. What is due by the new time-outs ends at once.
    """
    found = (await paddock.sessions.get(session)).settings
    if level is None and idle_timeout is None and wall_timeout is None:
        shown = await found.get()
    else:
        shown = await found.set(
            permission_level=level, idle_timeout=idle_timeout, wall_timeout=wall_timeout
        )
    if as_json:
        print_json(shown.raw)
        return
    ends = shown.deadlines.raw
    last = min((each for each in (ends["wall_at"], ends["budget_at"]) if each), default=None)
    print_fields(
        (
            ("level", shown.permission_level),
            ("idle time-out", f"{shown.idle_timeout} s"),
            ("wall time-out", None if shown.wall_timeout is None else f"{shown.wall_timeout} s"),
            ("ends when idle", ends["idle_at"]),
            ("ends at", last),
            ("workspace", shown.workspace.root_dir),
        )
    )


@remote
async def extend(
    paddock: "Paddock",
    sessions: SessionIds,
    seconds: Annotated[
        int, typer.Option("--for", min=1, metavar="SECONDS", help="By default an hour.")
    ] = _AN_HOUR,
) -> None:
    """Lengthen the time-outs of sessions, so that none ends them for so long from now."""

    async def one(session: str) -> None:
        kept = await (await paddock.sessions.get(session)).keep_alive(seconds)
        ends = [kept.deadlines.raw[name] for name in ("idle_at", "wall_at", "budget_at")]
        earliest = min((each for each in ends if each), default=None)
        note(f"{session} ends {'not by time' if earliest is None else f'at {earliest}'}")

    await each_of(sessions, one)
