"""Prints output: tables and colour on a terminal, plain columns elsewhere, JSON on request."""

import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from paddock.contract.base import Model


STYLES = {
    "active": "green",
    "paused": "yellow",
    "completed": "blue",
    "aborted": "red",
    "budget-exceeded": "red",
    "running": "green",
    "ready": "green",
    "timed_out": "yellow",
    "busy": "green",
    "lost": "red",
    "allow": "green",
    "deny": "red",
    "pending": "yellow",
    "approved": "green",
    "denied": "red",
    "ok": "green",
    "warning": "yellow",
    "failure": "red",
    "low": "cyan",
    "medium": "blue",
    "high": "magenta",
    "admin": "magenta",
}
# Wider than any row, because readers of a pipe need whole lines.
_PIPE_WIDTH = 1_000_000
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_AGES = ((86_400, "d"), (3600, "h"), (60, "m"))

Cell = str | int | float | None


def print_json(value: Any) -> None:
    """JSON over several lines, in ASCII; in colour on a terminal."""
    text = json.dumps(value, indent=2)
    if sys.stdout.isatty():
        console(sys.stdout).print_json(text, indent=2, ensure_ascii=True)
    else:
        print(text)


def print_json_line(value: Any) -> None:
    """JSON on one line, at once, for items that arrive one at a time."""
    print(json.dumps(value, separators=(",", ":"), ensure_ascii=True), flush=True)


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, nothing: str, title: str = ""
) -> None:
    """Prints rows under headings; columns whose name begins with `>` are numbers.

    If there are no rows, a terminal shows `nothing`.
    """
    filled = [[_cell(value) for value in row] for row in rows]
    if title:
        console(sys.stdout).print(f"\n{title}", style="bold")
    if not filled:
        note(nothing)
        return
    _print(_table(columns, filled))


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> "Table":
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="dim")
    for number, column in enumerate(columns):
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">").upper(),
            justify="right" if right else "left",
            no_wrap=number < len(columns) - 1,
            overflow="fold",
        )
    for cells in rows:
        table.add_row(*cells)
    return table


@contextmanager
def live_tables() -> Iterator[Callable[[Sequence[str], Iterable[Sequence[Cell]], str], None]]:
    """Yields a function that replaces the table on the terminal; the last one stays.

    Like `print_table`, it takes columns, rows and what is shown instead of no rows. A table that
    is higher than the terminal is cut.
    """
    from rich.live import Live
    from rich.text import Text

    with Live(console=console(sys.stdout), auto_refresh=False, vertical_overflow="crop") as live:

        def show(columns: Sequence[str], rows: Iterable[Sequence[Cell]], nothing: str) -> None:
            filled = [[_cell(value) for value in row] for row in rows]
            shown = _table(columns, filled) if filled else Text(nothing, style="dim")
            live.update(shown, refresh=True)

        yield show


def print_done(answer: "Model", as_json: bool, text: str) -> None:
    """Prints the answer to a change as JSON, or as a note for a person."""
    if as_json:
        print_json(answer.raw)
    else:
        note(text)


def print_fields(fields: Iterable[tuple[str, Any]]) -> None:
    """Prints names and values, one pair per line; a value of None is left out."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), show_header=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in fields:
        if value is not None:
            table.add_row(name, _cell(value))
    _print(table)


def print_line(*parts: tuple[str, str]) -> None:
    """Prints one line of (text, style) parts at once."""
    from rich.text import Text

    line = Text.assemble(*((plain(text), style) for text, style in parts))
    line.rstrip()
    console(sys.stdout).print(line, soft_wrap=True)
    sys.stdout.flush()


def note(text: str) -> None:
    """Prints a note for a person on stderr, so that piped output stays clean."""
    console(sys.stderr).print(plain(text), style="dim", soft_wrap=True)


def complain(text: str) -> None:
    """Prints an error in one line on stderr."""
    from rich.text import Text

    line = Text.assemble(("paddock: ", "bold red"), " ".join(plain(text).split()))
    console(sys.stderr).print(line, soft_wrap=True)


@contextmanager
def working(text: str) -> Iterator[Callable[[str], None]]:
    """Shows on a terminal what the command waits for; yields a function that adds how far it is."""
    if not sys.stderr.isatty():
        yield lambda _so_far: None
        return
    with console(sys.stderr).status(plain(text), spinner="dots") as shown:
        yield lambda so_far: shown.update(plain(f"{text}: {so_far}"))


def print_foreign(text: str, stream: TextIO, *, raw: bool = False) -> None:
    """Prints a sandbox's output at once; on a terminal, made harmless.

    Escape sequences could write elsewhere on the screen, or type for the person.
    """
    stream.write(text if raw or not stream.isatty() else _harmless(text))
    stream.flush()


def print_written(text: str, data: bytes, stream: TextIO, *, raw: bool = False) -> None:
    """Prints what a command wrote: to a terminal as harmless text, elsewhere exactly its bytes."""
    if raw or not stream.isatty():
        print_bytes(data, stream)
    else:
        print_foreign(text, stream)


def print_bytes(data: bytes, stream: TextIO) -> None:
    """Prints exactly these bytes at once, after the text so far."""
    stream.flush()
    stream.buffer.write(data)
    stream.buffer.flush()


def _harmless(text: str) -> str:
    """The text with its line breaks unchanged, and other control characters escaped."""
    return "".join(char if char in "\n\r\t" else plain(char) for char in text)


def plain(text: str) -> str:
    """Makes any text harmless for a terminal by escaping control characters."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def size(count: float | None) -> str:
    """Bytes for a person, as in `256 MiB`."""
    if count is None:
        return "-"
    for unit in _UNITS[:-1]:
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 10 else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} {_UNITS[-1]}"


def seconds(duration: float | None) -> str:
    """A duration for a person, as in `1.5 s` or `3m 20s`."""
    if duration is None:
        return "-"
    if duration < 60:
        return f"{duration:.0f} s" if duration >= 10 else f"{duration:.2g} s"
    minutes, rest = divmod(int(duration), 60)
    hours, minutes = divmod(minutes, 60)
    parts = ((hours, "h"), (minutes, "m"), (0 if hours else rest, "s"))
    return " ".join(f"{count}{unit}" for count, unit in parts if count)


def age(time: datetime | None, now: datetime | None = None) -> str:
    """How long ago it was, as in `5m`."""
    if time is None:
        return "-"
    passed = ((now or datetime.now(UTC)) - time).total_seconds()
    for unit, name in _AGES:
        if passed >= unit:
            return f"{passed / unit:.0f}{name}"
    return f"{max(passed, 0):.0f}s"


def console(stream: TextIO) -> "Console":
    """A console on a stream; in colour only if a terminal shows it and NO_COLOR is not set."""
    from rich.console import Console

    terminal = stream.isatty()
    return Console(
        file=stream,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=terminal,
        width=None if terminal else _PIPE_WIDTH,
    )


def _print(table: "RenderableType") -> None:
    if sys.stdout.isatty():
        console(sys.stdout).print(table)
        return
    text = io.StringIO()
    console(text).print(table)
    for line in text.getvalue().splitlines():
        print(line.rstrip())


def _cell(value: Any) -> Any:
    from rich.text import Text

    if value is None or value == "":
        return Text("-", style="dim")
    text = plain(str(value))
    return Text(text, style=STYLES.get(text, ""))
