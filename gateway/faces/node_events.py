"""Events as nodes send them, found in the bytes as they arrive. No I/O."""

import re
from typing import NamedTuple

# An event has up to 64 KiB of arguments and as much of a result, whose characters JSON may escape.
MOST_EVENT_BYTES = 2**20
_END = b"\n\n"
_EVENT = re.compile(rb"id: ([0-9]{1,18})\nevent: ([a-z_.]{1,64})\ndata: (\{[^\r\n]*\})")
_COMMENT = b":"


class NodeEvent(NamedTuple):
    """An event of a node: its number, its name, and its data, which is JSON on one line."""

    id: int
    name: bytes
    data: bytes


class NotEventsError(ValueError):
    """A node sends something else."""


class EventReader:
    """Finds the events, however they are split. It keeps one event at most."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[NodeEvent]:
        """The events that are now complete. Raises: NotEventsError."""
        seen = max(0, len(self._rest) - 1)
        self._rest += data
        found = []
        begin = 0
        while (end := self._rest.find(_END, max(begin, seen))) >= 0:
            event = _event(bytes(self._rest[begin:end]))
            if event is not None:
                found.append(event)
            begin = end + len(_END)
        del self._rest[:begin]
        if len(self._rest) > MOST_EVENT_BYTES:
            raise NotEventsError
        return found


def _event(block: bytes) -> NodeEvent | None:
    """None: it is a comment, which shows that the connection is alive."""
    if block.startswith(_COMMENT):
        return None
    found = _EVENT.fullmatch(block)
    if found is None:
        raise NotEventsError
    return NodeEvent(int(found[1]), found[2], found[3])
