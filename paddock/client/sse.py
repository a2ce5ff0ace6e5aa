"""Parses Server-Sent Events from bytes as they arrive. No I/O."""

import json
import re
from typing import Any, NamedTuple

from paddock.client.errors import NotPaddockError

# An event has at most 256 KiB of output, and JSON may use six bytes for each.
_MOST_EVENT_BYTES = 8 * 1024 * 1024
_NUMBER = re.compile(r"[0-9]{1,19}", re.ASCII)


class ServerEvent(NamedTuple):
    """One event: its name, its parsed JSON data, and its id if it has one: a cluster's are texts.

    An event without data, whose data is empty, only says with its id where to read on.
    """

    name: str
    data: dict[str, Any]
    id: int | str | None


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
    except (ValueError, RecursionError):
        raise NotPaddockError("the server sends events that are not Paddock's") from None
    if not isinstance(data, dict):
        raise NotPaddockError("the server sends events that are not Paddock's")
    return ServerEvent(fields.get("event", "message"), data, _id(fields.get("id")))


def _id(text: str | None) -> int | str | None:
    """A number, if it is one that a machine counts."""
    return int(text) if text is not None and _NUMBER.fullmatch(text) else text
