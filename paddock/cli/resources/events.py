"""The command `events`: audit events as they happen."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from paddock.cli.connection import remote
from paddock.cli.description import summary
from paddock.cli.options import JsonLines, example
from paddock.cli.output import STYLES, note, print_json_line, print_line

if TYPE_CHECKING:
    from paddock.client import AuditEvent, Paddock

_MARKS = {"allow": "✓", "deny": "✗", "pending": "?"}
_OPERATION_WIDTH = 18
_SESSION_WIDTH = 21


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("paddock events -f"))(events)


@remote
async def events(
    paddock: "Paddock",
    session: Annotated[
        str | None,
        typer.Argument(
            metavar="SESSION", help="Events of this session; by default of all, from now on."
        ),
    ] = None,
    follow: Annotated[
        bool,
        typer.Option("--follow", "-f", help="Continue with new events until the session ends."),
    ] = False,
    after: Annotated[
        int | None,
        typer.Option(
            min=0, help="Only events after this seq of the session, or id for all sessions."
        ),
    ] = None,
    as_json: JsonLines = False,
) -> None:
    """Show events as they happen: commands, files, session changes, and refusals.

    A session's events are shown from the first one on. The events of all sessions are always
    followed until Ctrl-C; --after 0 begins with the first recorded event.
    """
    if session is None:
        found = paddock.events(after=after)
        if not as_json:
            note("following the events of all sessions; Ctrl-C ends it")
    elif follow:
        found = (await paddock.sessions.get(session)).events(after=after or 0)
    else:
        found = paddock.sessions.audit(session).events(after=after or 0)
    await show(found, as_json=as_json, with_session=session is None)


async def show(
    events: "AsyncGenerator[AuditEvent, None]",
    *,
    as_json: bool,
    with_session: bool,
    most: int | None = None,
) -> None:
    """Prints events as they arrive, up to a maximum number."""
    count = 0
    async with aclosing(events) as coming:
        async for event in coming:
            count += 1
            if as_json:
                print_json_line(event.raw)
            else:
                print_line(*line(event.raw, with_session=with_session))
            if count == most:
                return


def line(event: dict[str, Any], *, with_session: bool) -> list[tuple[str, str]]:
    """An event as (text, style) parts. Pure, except for the time zone."""
    decision = event.get("decision") or ""
    time = datetime.fromisoformat(event["time"]).astimezone()
    number = str(event["id"] if with_session else event["seq"])
    denied = decision == "deny"
    parts = [
        (f"{time:%H:%M:%S}.{time.microsecond // 1000:03d}  ", "dim"),
        (f"{number:>5}  ", "dim"),
    ]
    if with_session:
        parts.append((f"{event.get('session_id') or '-':<{_SESSION_WIDTH}}  ", "cyan"))
    parts += [
        (f"{_MARKS.get(decision, ' ')} ", f"bold {STYLES.get(decision, '')}".strip()),
        (f"{event['operation']:<{_OPERATION_WIDTH}}  ", "red" if denied else "bold"),
        (summary(event), _summary_style(event)),
    ]
    if event.get("rule"):
        parts.append((f"  [{event['rule']}]", STYLES["deny"] if denied else "dim"))
    if event.get("duration_ms") is not None and event["operation"] == "command.exit":
        parts.append((f"  {event['duration_ms']} ms", "dim"))
    return parts


def _summary_style(event: dict[str, Any]) -> str:
    if event["operation"] != "command.exit":
        return ""
    return "green" if (event.get("result") or {}).get("exit_code") == 0 else "yellow"
