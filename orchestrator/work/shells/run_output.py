"""What a kept shell's programs have printed since the last answer: bounded, and searched. Pure."""

from collections.abc import Sequence
from typing import NamedTuple

# The first and the last bytes that one answer has.
HEAD_BYTES = 64 * 1024
TAIL_BYTES = 192 * 1024


class Printed(NamedTuple):
    """The output of one answer, without `cut` bytes in its middle; `bytes` counts all."""

    text: str
    bytes: int
    cut: int


class RunOutput:
    """Output that no answer has had."""

    def __init__(self) -> None:
        self._head = bytearray()
        self._tail = bytearray()
        self._total = 0
        self._searched: dict[str, bytes] = {}
        self._seen = b""
        # The first of the texts that are looked for to be printed.
        self.found: str | None = None

    def look_for(self, texts: Sequence[str]) -> None:
        """Looks for those texts in the output from here on, and in what no answer has had."""
        self._searched = {text: text.encode() for text in texts}
        self._seen, self.found = b"", None
        self._search(bytes(self._head))
        self._search(bytes(self._tail))

    def add(self, data: bytes) -> None:
        """Adds output."""
        self._total += len(data)
        self._search(data)
        room = HEAD_BYTES - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * TAIL_BYTES:
            del self._tail[:-TAIL_BYTES]

    def take(self) -> Printed:
        """The output so far, which the next answer does not have again."""
        tail = self._tail[-TAIL_BYTES:]
        kept = len(self._head) + len(tail)
        cut = self._total - kept
        gap = f"\n[{cut} bytes are cut]\n".encode() if cut else b""
        text = (self._head + gap + tail).decode("utf-8", "replace")
        printed = Printed(text, self._total, cut)
        self._head, self._tail, self._total = bytearray(), bytearray(), 0
        return printed

    def _search(self, data: bytes) -> None:
        if not self._searched or self.found is not None or not data:
            return
        window = self._seen + data
        places = {text: window.find(wanted) for text, wanted in self._searched.items()}
        printed = {text: place for text, place in places.items() if place >= 0}
        self.found = min(printed, key=printed.__getitem__, default=None)
        most = max(map(len, self._searched.values())) - 1
        self._seen = window[-most:] if most else b""
