"""Handles a command's output: shown at once, or collected for one JSON object."""

import base64
import sys
from collections import deque
from typing import TYPE_CHECKING

from paddock.cli.output import note, print_json, print_written

if TYPE_CHECKING:
    from paddock.client import ExitData, Output

# Characters kept of the beginning and of the end for JSON output.
MOST_KEPT = 2 * 1024 * 1024


class Printed:
    """Prints output to the matching streams; a note marks missing parts."""

    def __init__(self, *, raw: bool) -> None:
        self._raw = raw
        self._cut = 0

    def add(self, piece: "Output", *, cut: int) -> None:
        """The next piece, before which so many bytes are missing."""
        if cut:
            self._cut += cut
            note(marker(cut))
        out = sys.stdout if piece.stream == "stdout" else sys.stderr
        print_written(piece.text, piece.data, out, raw=self._raw)

    def end(self, end: "ExitData") -> None:
        """The command has ended."""
        sys.stdout.flush()
        sys.stderr.flush()
        if self._cut:
            note(f"{end.output_bytes} bytes were printed; {self._cut} of them were not kept")


class Collected:
    """Collects the beginning and the end of a command's output for an object like `exec`'s.

    Bytes that are no UTF-8 are lone surrogates meanwhile.
    """

    def __init__(self, session_id: str, most: int = MOST_KEPT) -> None:
        self._session_id = session_id
        self._most = most
        self._first: list[tuple[str, str]] = []
        self._last: deque[tuple[str, str]] = deque()
        self._first_left, self._last_size = most, 0
        self._cut = 0

    def add(self, piece: "Output", *, cut: int) -> None:
        """The next piece, before which so many bytes are missing."""
        if cut:  # one gap is enough: the end begins after the last one
            self._cut += cut + sum(_size(text) for _, text in self._last)
            self._last.clear()
            self._first_left = self._last_size = 0
        text = piece.data.decode("utf-8", "surrogateescape")
        first = text[: self._first_left]
        self._first_left -= len(first)
        if first:
            self._first.append((piece.stream, first))
        last = text[len(first) :]
        if last:
            self._last.append((piece.stream, last))
            self._last_size += len(last)
            self._shrink()

    def _shrink(self) -> None:
        while self._last_size > self._most:
            stream, text = self._last.popleft()
            dropped = text[: self._last_size - self._most]
            self._last_size -= len(dropped)
            self._cut += _size(dropped)
            if rest := text[len(dropped) :]:
                self._last.appendleft((stream, rest))

    def end(self, end: "ExitData") -> None:
        """Prints the object."""
        members = {
            **{name: value for name, value in end.raw.items() if name != "time"},
            "truncated": self._cut > 0,
            "cut_bytes": self._cut,
        }
        for name in ("stdout", "stderr"):
            members |= _told(name, self._text(name))
        print_json({"session": self._session_id, **members})

    def _text(self, stream: str) -> str:
        first = "".join(text for name, text in self._first if name == stream)
        last = "".join(text for name, text in self._last if name == stream)
        between = f"\n{marker(self._cut)}\n" if self._cut and first else ""
        return f"{first}{between}{last}"


def _told(name: str, text: str) -> dict[str, str]:
    """The stream as text, and its bytes if the text is not all of them."""
    data = text.encode("utf-8", "surrogateescape")
    shown = data.decode("utf-8", "replace")
    if shown.encode() == data:
        return {name: shown}
    return {name: shown, f"{name}_base64": base64.b64encode(data).decode()}


def _size(text: str) -> int:
    return len(text.encode("utf-8", "surrogateescape"))


def marker(count: int) -> str:
    """The mark that replaces `count` missing bytes."""
    return f"[{count} bytes of output were cut here]"
