"""The lines of a terminal, on a screen of unlimited width. Pure.

A carriage return moves to the line's start, and the characters that follow overwrite those there. A
backspace moves back by one; a newline ends the line with all of its characters. So `\r\n` and
`\r\r\n` are newlines, and a progress bar keeps its last state. Cursor movements are not followed,
because programs with `TERM=dumb` do not use them.
"""

import re

from orchestrator.work.terminals.ansi import (
    BACKSPACE,
    ERASE_LINE,
    ERASE_TO_END,
    NEWLINE,
    RETURN,
    Cleaner,
)

_PIECE = re.compile(r"[\n\r\x08\x0b\x0c]|[^\n\r\x08\x0b\x0c]+")


class Screen:
    """Converts bytes to complete lines; at most `limit` characters of a line are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._cleaner = Cleaner()
        self._line: list[str] = []
        self._column = 0

    @property
    def line(self) -> str:
        """The last, incomplete line."""
        return "".join(self._line)

    @property
    def length(self) -> int:
        """Its number of characters."""
        return len(self._line)

    def feed(self, data: bytes) -> list[str]:
        """The lines that `data` completes."""
        ended: list[str] = []
        for found in _PIECE.finditer(self._cleaner.feed(data).replace("\r\n", "\n")):
            piece = found[0]
            if piece == NEWLINE:
                ended.append(self.line)
                self._line.clear()
                self._column = 0
            elif piece == RETURN:
                self._column = 0
            elif piece == BACKSPACE:
                self._column = max(0, self._column - 1)
            elif piece == ERASE_TO_END:
                del self._line[self._column :]
            elif piece == ERASE_LINE:
                self._line[:] = " " * self._column
            else:
                self._write(piece)
        return ended

    def _write(self, run: str) -> None:
        run = run[: self._limit - self._column]
        end = self._column + len(run)
        self._line[self._column : end] = run
        self._column = end
