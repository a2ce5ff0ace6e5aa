"""Runs: messages to a model that works in a session."""

import json
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from paddock.cli.connection import remote
from paddock.cli.exits import Failure, Status
from paddock.cli.options import AsJson, JsonLines, OptionalLevel, SessionId, TurnTimeLimit, example
from paddock.cli.output import (
    complain,
    note,
    print_foreign,
    print_json,
    print_json_line,
    print_line,
)

if TYPE_CHECKING:
    from paddock.client import Paddock, Run, TimelineEntry
    from paddock.client.run_events import RunEvent

E = TypeVar("E", bound="RunEvent")

_LONGEST = 100

ModelName = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="NAME", help="The model; by default the first one."),
]
MostTicks = Annotated[
    int | None,
    typer.Option("--max-ticks", min=1, max=100, metavar="N", help="The most calls of the model."),
]


def add_to(app: typer.Typer) -> None:
    """Adds the commands."""
    app.command(epilog=example('paddock send web-1 "What is in this workspace?"'))(send)
    app.command(epilog=example('paddock queue web-1 "Also update the docs."'))(queue)
    app.command(epilog=example("paddock render web-1"))(render)
    app.command(epilog=example("paddock timeline web-1"))(timeline)


@remote
async def send(
    paddock: "Paddock",
    session: SessionId,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The message; - is the input.")],
    model: ModelName = None,
    max_ticks: MostTicks = None,
    level: OptionalLevel = None,
    tools: Annotated[
        Path | None,
        typer.Option("--tools", metavar="FILE", help="A JSON list of tools of yours for the run."),
    ] = None,
    timeout: TurnTimeLimit = None,
    as_json: AsJson = False,
) -> int:
    """Send a message to a model that works in a session by calling tools.

    Shows its text and its calls of tools as they come. The exit status is 0 if the outcome is `ok`
    or `proposed`, and 1 otherwise.
    """
    message = message_of(text)
    own = None if tools is None else _tools_of(tools)
    found = await paddock.sessions.get(session)
    stream = found.send_stream(
        message,
        model=model,
        max_ticks=max_ticks,
        permission_level=level,
        tools=own,
        timeout=timeout,
    )
    return await _to_end(stream, as_json)


@remote
async def render(
    paddock: "Paddock",
    session: SessionId,
    model: ModelName = None,
    max_ticks: MostTicks = None,
    level: OptionalLevel = None,
    timeout: TurnTimeLimit = None,
    as_json: AsJson = False,
) -> int:
    """Run a model with what was said before and what is queued; else like `send`."""
    found = await paddock.sessions.get(session)
    stream = found.render_stream(
        model=model, max_ticks=max_ticks, permission_level=level, timeout=timeout
    )
    return await _to_end(stream, as_json)


@remote
async def queue(
    paddock: "Paddock",
    session: SessionId,
    texts: Annotated[
        list[str], typer.Argument(metavar="TEXT...", help="Messages; - is the input.")
    ],
    as_json: AsJson = False,
) -> None:
    """Keep messages for a session's next run, and run nothing."""
    messages = [message_of(text) for text in texts]
    waiting = await (await paddock.sessions.get(session)).queue(*messages)
    print_json({"queued": waiting}) if as_json else note(f"{waiting} wait for the next run")


@remote
async def timeline(
    paddock: "Paddock",
    session: SessionId,
    after: Annotated[
        int, typer.Option(min=0, metavar="SEQ", help="Only entries after this one.")
    ] = 0,
    as_json: JsonLines = False,
) -> None:
    """Show what was said to models in a session, by them and by tools."""
    found = await paddock.sessions.get(session)
    place: int | None = after
    while place is not None:
        page = await found.timeline(after=place)
        for entry in page.items:
            if as_json:
                print_json_line(entry.raw)
            else:
                _show_entry(entry)
        place = page.next


def _show_entry(entry: "TimelineEntry") -> None:
    head = f"{entry.seq:>4}  {entry.role:9} "
    for call in entry.tool_calls:
        print_line((head, "dim"), (f"{call.name} ", "bold"), (_short(call.arguments), "dim"))
    if entry.role == "tool":
        print_line((head, "dim"), (_short(entry.content), "dim"))
    elif entry.content:
        print_line((head, "dim"))
        print_foreign(entry.content.rstrip("\n") + "\n", sys.stdout)


async def _to_end(stream: "AsyncGenerator[RunEvent, None]", as_json: bool) -> int:
    """Shows a run until it has ended, and returns our exit status."""
    from paddock.client import Run

    ended: Run | None = None
    async for event in RunView().followed(stream, as_json):
        if isinstance(event, Run):
            ended = event
    if ended is None or ended.outcome is None:
        return Status.FAILED
    if not as_json:
        _show_end(ended)
    return Status.OK if ended.outcome.tag in ("ok", "proposed") else Status.FAILED


def message_of(text: str) -> str:
    """The message; `-` is standard input. Raises: Failure if it is empty."""
    message = sys.stdin.read() if text == "-" else text
    if not message:
        raise Failure("the message is empty", status=Status.USAGE)
    return message


def _tools_of(path: Path) -> list[dict[str, Any]]:
    """The tools in that file. Raises: Failure, OSError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Failure(f"{path}: {error}", status=Status.USAGE) from None
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise Failure(f"{path}: must be a list of tools", status=Status.USAGE)
    return found


class RunView:
    """What is shown of a run: text as it comes, and a line for each call and its result.

    Of children that it spawns, only their beginnings and ends are shown.
    """

    def __init__(self, depth: int = 0) -> None:
        """`depth` is how many spawns lead to the run."""
        self._depth = depth
        self._in_line = False

    async def followed(
        self, stream: AsyncGenerator[E, None], as_json: bool
    ) -> AsyncGenerator[E, None]:
        """Shows the events as they come, and passes them on."""
        async with aclosing(stream) as events:
            async for event in events:
                if as_json:
                    print_json_line(event.raw)
                else:
                    self.show(event)
                yield event

    def show(self, event: "RunEvent") -> None:
        """Shows an event, if it has something to show."""
        from paddock.client import (
            RunText,
            RunTick,
            RunToolCall,
            RunToolResult,
            SpawnEnd,
            SpawnStart,
        )
        from paddock.contract.turns import TurnStarted

        if len(getattr(event, "spawn_path", ())) != self._depth:
            return
        if isinstance(event, RunText):
            print_foreign(event.text, sys.stdout)
            self._in_line = not event.text.endswith("\n")
            return
        if not isinstance(event, RunTick | TurnStarted) and self._in_line:
            print_line(("", ""))
            self._in_line = False
        if isinstance(event, RunToolCall):
            print_line((f"{event.tool} ", "bold"), (_short(event.arguments), "dim"))
        elif isinstance(event, RunToolResult):
            print_line(("  ", ""), (_short(event.content), "dim"))
        elif isinstance(event, SpawnEnd):
            said = f"failed: {event.error}" if event.is_error else "done"
            print_line((f"  {event.label or event.child_session_id} ", ""), (_short(said), "dim"))
        elif isinstance(event, SpawnStart):
            print_line((f"  {event.label or event.child_session_id} ", ""), ("spawned", "dim"))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def _show_end(run: "Run") -> None:
    outcome = run.outcome
    if outcome is None:
        return
    if outcome.tag == "error":
        complain(f"{outcome.error_type}: {outcome.message}")
    elif outcome.tag == "needs":
        complain(f"{outcome.need_type}: {outcome.description}")
    elif outcome.tag == "nonconverged":
        complain(f"it did not come to an end: {outcome.reason}")
    number = "" if run.turn_number is None else f"turn {run.turn_number}: "
    note(f"{number}{outcome.tag}, {run.operations_count} operations, {run.tokens_used} tokens")
