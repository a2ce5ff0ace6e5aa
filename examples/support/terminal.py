"""Prints readable output: headings, marks, tables, and a command's output live."""

import io
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence

GREEN, RED, CYAN, YELLOW, BOLD, DIM = "32", "31", "36;1", "33", "1", "2"
# The colours of a diff's lines, by their first characters.
_OF_DIFF = {"+": GREEN, "-": RED, "@": CYAN}
# Narrower tables would be useless; a narrower terminal wraps their lines.
_LEAST_WIDTH = 120
# Output of a sandbox must reach the terminal only as text.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Terminal:
    """Standard output, in colour if it is a terminal and NO_COLOR is not set."""

    def __init__(self) -> None:
        self._colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        self._line_open = False
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # for characters that it can't show

    def paint(self, text: str, colour: str) -> str:
        """`text` in a colour, if colours are used."""
        return f"\033[{colour}m{text}\033[0m" if self._colour and text and colour else text

    def heading(self, text: str) -> None:
        """Prints a heading."""
        print(f"\n{self.paint(f'── {text}', CYAN)}", flush=True)

    def step(self, text: str) -> None:
        """Prints what has been done or is about to be done."""
        print(f"   {self.paint(printable(text), DIM)}", flush=True)

    def allowed(self, text: str) -> None:
        """Prints a command that ran."""
        print(f" {self.paint('✓', GREEN)} {self.paint(printable(text), BOLD)}", flush=True)

    def failed(self, text: str) -> None:
        """Prints what did not succeed."""
        print(f" {self.paint('✗', RED)} {self.paint(printable(text), BOLD)}", flush=True)

    def refused(self, text: str, rule: str, why: str) -> None:
        """Prints a refused command, the rule and the reason."""
        mark, shown = self.paint("✗", RED), self.paint(printable(text), BOLD)
        print(f" {mark} {shown}  {self.paint(rule, YELLOW)}", flush=True)
        self.step(f"  {why}")

    def output(self, text: str, at_most: int | None = None) -> None:
        """Prints a command's output, cut to the first `at_most` lines."""
        lines = text.splitlines()
        shown = lines if at_most is None else lines[:at_most]
        self.live("".join(f"{line}\n" for line in shown))
        if len(shown) < len(lines):
            self.live(f"… {len(lines) - len(shown)} more lines\n")

    def live(self, text: str) -> None:
        """Prints a piece of a command's output, which may end within a line."""
        bar = f"   {self.paint('│', DIM)} "
        for piece in printable(text).splitlines(keepends=True):
            print(piece if self._line_open else bar + piece, end="", flush=True)
            self._line_open = not piece.endswith("\n")

    def diff(self, text: str) -> None:
        """Prints a unified diff: what is added in green, what is removed in red."""
        for line in printable(text).splitlines():
            print(f"   {self.paint(line, _OF_DIFF.get(line[:1], ''))}", flush=True)

    def end_line(self) -> None:
        """Ends a line that the command's output left open."""
        if self._line_open:
            print(flush=True)
            self._line_open = False

    def table(
        self,
        header: Sequence[str],
        rows: Iterable[Sequence[str]],
        colours: Mapping[str, str] | None = None,
    ) -> None:
        """Prints a table; the last column is cut at the width. `colours` maps cell texts."""
        cells = [[printable(cell).replace("\n", " ") for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(header, *cells, strict=True)]
        total = max(shutil.get_terminal_size((_LEAST_WIDTH, 24)).columns, _LEAST_WIDTH)
        widths[-1] = max(8, min(widths[-1], total - 3 - sum(width + 2 for width in widths[:-1])))
        self._row(header, widths, dict.fromkeys(header, DIM))
        for row in cells:
            self._row(row, widths, colours or {})

    def _row(self, row: Sequence[str], widths: list[int], colours: Mapping[str, str]) -> None:
        padded = [
            self.paint(_cut(cell, width).ljust(width), colours[cell])
            if cell in colours
            else _cut(cell, width).ljust(width)
            for cell, width in zip(row, widths, strict=True)
        ]
        print(f"   {'  '.join(padded).rstrip()}", flush=True)


def printable(text: str) -> str:
    """`text` without control characters except line ends and tabs."""
    return _CONTROL.sub("�", text)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"
