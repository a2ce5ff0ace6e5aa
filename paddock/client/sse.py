"""Parses Server-Sent Events from bytes as they arrive. No I/O."""

import json
from typing import Any, NamedTuple

from paddock.client.errors import NotPaddockError

# An event has at most 256 KiB of output, and JSON may use six bytes for each.
_MOST_EVENT_BYTES = 8 * 1024 * 1024


class ServerEvent(NamedTuple):
    """One event: its name, its parsed JSON data, and its id if it has one.

    An event without data, whose data is empty, only says with its id where to read on.
    """

    name: str
    data: dict[str, Any]
    id: int | None


class EventParser:
    """Finds the events in the bytes of a `text/event-stream`, however they are split."""

    def __init__(self) -> None:
        self._rest = b""
        self._fields: dict[str, str] = {}

    def feed(self, data: bytes) -> list[ServerEvent]:
        """The events that are now complete. Raises: NotPaddockError."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _MOST_EVENT_BYTES:
            raise NotPaddockError("the server sends an event without end")
        events = []
        for line in lines:
            event = self._take(line.removesuffix(b"\r"))
            if event is not None:
                events.append(event)
        return events

    def _take(self, line: bytes) -> ServerEvent | None:
        if line:
            name, _, value = line.decode("utf-8", "replace").partition(":")
            if name:  # otherwise a comment
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        return _event(fields) if "data" in fields else None


def _event(fields: dict[str, str]) -> ServerEvent:
    try:
        data = json.loads(fields["data"]) if fields["data"] else {}
        number = int(fields["id"]) if "id" in fields else None
    except (ValueError, RecursionError):
        raise NotPaddockError("the server sends events that are not Paddock's") from None
    if not isinstance(data, dict):
        raise NotPaddockError("the server sends events that are not Paddock's")
    return ServerEvent(fields.get("event", "message"), data, number)
