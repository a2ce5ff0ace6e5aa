"""`top`: what uses a session, or all of them, as it changes."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from paddock.cli.connection import remote
from paddock.cli.description import words
from paddock.cli.options import AsJson, example, finite
from paddock.cli.output import Cell, live_tables, print_json, print_table, seconds, size

if TYPE_CHECKING:
    from paddock.client import InspectedSession, Paddock

# Inspections at once: each takes the host a few milliseconds.
_AT_ONCE = 8
_SESSIONS = ("session", "level", "activity", ">cpu", ">memory", ">limit", ">processes", ">commands")
_PROCESSES = (">pid", "state", ">cpu", ">cpu time", ">memory", "argv")


class _Page(NamedTuple):
    """One look: the columns and rows of its table, and what is shown instead of no rows."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    nothing: str


def add_to(app: typer.Typer) -> None:
    """Adds the command."""
    app.command(epilog=example("paddock top web-1"))(top)


@remote
async def top(
    paddock: "Paddock",
    session: Annotated[
        str | None,
        typer.Argument(metavar="SESSION", help="Its processes; by default all live sessions."),
    ] = None,
    interval: Annotated[
        float,
        typer.Option(
            min=0.1, callback=finite, metavar="SECONDS", help="The time between two looks."
        ),
    ] = 2.0,
    count: Annotated[
        int | None,
        typer.Option(
            "--count", "-n", min=1, metavar="N", help="End after so many looks; else by Ctrl-C."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show processor time, memory and processes, of a session or of all, as they change.

    What uses most is first. Where standard output is no terminal, and with --json, it is shown
    once. Percentages are of one core, since the look before.
    """
    if as_json or not sys.stdout.isatty():
        found = await _looked(paddock, session)
        if as_json:
            print_json([each.raw for each in found])
        else:
            page = _page(found, session)
            print_table(page.columns, page.rows, nothing=page.nothing)
        return
    import asyncio  # no other command is to load it at its start

    with live_tables() as show:
        while True:
            page = _page(await _looked(paddock, session), session)
            show(page.columns, page.rows, page.nothing)
            count = None if count is None else count - 1
            if count == 0:
                return
            await asyncio.sleep(interval)


async def _looked(paddock: "Paddock", session: str | None) -> list["InspectedSession"]:
    """The session, or all live ones; one that ends meanwhile is left out."""
    if session is not None:
        return [await paddock.sessions.inspect(session)]
    import asyncio

    from paddock.client import NotFoundError

    turn = asyncio.Semaphore(_AT_ONCE)

    async def look(name: str) -> "InspectedSession | None":
        async with turn:
            try:
                return await paddock.sessions.inspect(name)
            except NotFoundError:
                return None

    live = [each.id for each in await paddock.sessions.list() if each.info.live]
    return [found for found in await asyncio.gather(*map(look, live)) if found is not None]


def _page(found: Sequence["InspectedSession"], session: str | None) -> _Page:
    """The table of one look. Pure."""
    if session is not None:
        return _Page(_PROCESSES, _processes(found[0]), f"{session} has no processes")
    busiest = sorted(found, key=lambda info: info.usage.cpu_percent if info.usage else -1.0)
    return _Page(_SESSIONS, [_session(info) for info in reversed(busiest)], "no live sessions")


def _processes(info: "InspectedSession") -> list[Sequence[Cell]]:
    busiest = sorted(info.processes or (), key=lambda process: -process.cpu_percent)
    return [
        (
            process.pid,
            process.state,
            f"{process.cpu_percent:.0f} %",
            seconds(process.cpu_seconds),
            size(process.memory_bytes),
            words(process.argv) or process.name,
        )
        for process in busiest
    ]


def _session(info: "InspectedSession") -> Sequence[Cell]:
    used = info.usage
    running = sum(command.status == "running" for command in info.commands)
    return (
        info.id,
        info.permission_level,
        info.activity,
        None if used is None else f"{used.cpu_percent:.0f} %",
        None if used is None else size(used.memory_bytes),
        size(info.limits.memory_bytes),
        None if used is None else used.pids,
        running,
    )
