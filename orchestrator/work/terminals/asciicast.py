"""The lines of a recording: asciicast v2, which `asciinema play` plays. Pure.

A header, then one event per line: seconds since the start, `o` for output, `i` for input or `r` for
another size, and its data. Bytes that are not UTF-8 are U+FFFD, however they are split.
"""

import codecs
import json

OUTPUT, INPUT, RESIZE = "o", "i", "r"
# Tools have terminals that are wider than any screen, so that no line wraps.
MOST_COLUMNS = 500
_USUAL_COLUMNS = 132


def shown_columns(columns: int) -> int:
    """The width at which a terminal is shown."""
    return columns if columns <= MOST_COLUMNS else _USUAL_COLUMNS


class Recording:
    """Makes the lines of one recording, each with its newline."""

    def __init__(self, columns: int, rows: int, terminal_type: str) -> None:
        """`terminal_type` is the program's `TERM`."""
        self._size = shown_columns(columns), rows
        self._terminal_type = terminal_type
        decoder = codecs.getincrementaldecoder("utf-8")
        # Halves of characters, of each direction.
        self._decoders = {OUTPUT: decoder("replace"), INPUT: decoder("replace")}

    def header(self, timestamp: int) -> bytes:
        """The first line; `timestamp` is in unix seconds."""
        columns, rows = self._size
        return _line(
            {
                "version": 2,
                "width": columns,
                "height": rows,
                "timestamp": timestamp,
                "env": {"TERM": self._terminal_type},
            }
        )

    def output(self, seconds: float, data: bytes) -> bytes:
        """The line of output; nothing if it is only the beginning of a character."""
        return self._event(seconds, OUTPUT, data)

    def input(self, seconds: float, data: bytes) -> bytes:
        """The line of what was typed; nothing if it is only the beginning of a character."""
        return self._event(seconds, INPUT, data)

    def resize(self, seconds: float, columns: int, rows: int) -> bytes:
        """The line of another size."""
        return _line([_moment(seconds), RESIZE, f"{shown_columns(columns)}x{rows}"])

    def end(self, seconds: float) -> bytes:
        """The last lines: beginnings of characters that were never completed."""
        return b"".join(self._event(seconds, kind, b"", final=True) for kind in (OUTPUT, INPUT))

    def _event(self, seconds: float, kind: str, data: bytes, *, final: bool = False) -> bytes:
        text = self._decoders[kind].decode(data, final)
        return _line([_moment(seconds), kind, text]) if text else b""


def _moment(seconds: float) -> float:
    return round(max(0.0, seconds), 4)


def _line(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
