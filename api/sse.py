"""Server-Sent Events: the responses, and what a client resumes from."""

import codecs
import json
import re
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from api import stream
from orchestrator.errors import ValidationError

# Proxies close connections on which nothing moves, commonly after a minute.
HEARTBEAT_SECONDS = 15.0
_POSITION = re.compile(r"[0-9]{1,18}")


class EventStream:
    """A `text/event-stream` response."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
        )

    async def begin(self) -> None:
        """Sends the headers."""
        await stream.begin(self._request, self.response)

    async def send(self, event: str, data: Any, event_id: int | None = None) -> None:
        """One event, its data as JSON on one line. Raises: ConnectionError."""
        await stream.write(self._request, self.response, encode_event(event, data, event_id))

    async def send_text(self, event: str, text: str, event_id: int) -> None:
        """One event whose data is JSON already, on one line. Raises: ConnectionError."""
        head = f"id: {event_id}\nevent: {event}\ndata: "
        data = f"{head}{text}\n\n".encode()
        await stream.write(self._request, self.response, data)

    async def beat(self) -> None:
        """A comment, so that the connection is seen to live. Raises: ConnectionError."""
        await stream.write(self._request, self.response, b": alive\n\n")

    async def end(self) -> web.StreamResponse:
        """Ends the response, whole."""
        await self.response.write_eof()
        return self.response


def encode_event(event: str, data: Any, event_id: int | None = None) -> bytes:
    """An event as it is sent; JSON keeps line breaks out of its text."""
    head = "" if event_id is None else f"id: {event_id}\n"
    text = json.dumps(data, separators=(",", ":"))
    return f"{head}event: {event}\ndata: {text}\n\n".encode()


def resume_position(headers: Mapping[str, str], after: int | None) -> int | None:
    """Where to go on: `Last-Event-ID`, else `after`, else None. Raises: ValidationError."""
    last = headers.get("Last-Event-ID")
    if last is None:
        return after
    if not _POSITION.fullmatch(last):
        raise ValidationError("Last-Event-ID must be a whole number", field="Last-Event-ID")
    return int(last)


class TextDecoder:
    """Bytes of a command's streams as text, however they are cut; invalid UTF-8 is replaced."""

    def __init__(self) -> None:
        make = codecs.getincrementaldecoder("utf-8")
        self._decoders = {name: make("replace") for name in ("stdout", "stderr")}

    def feed(self, name: str, data: bytes) -> str:
        """The characters that are complete now; none for a stream that is not known."""
        decoder = self._decoders.get(name)
        return "" if decoder is None else decoder.decode(data)

    def pending(self, name: str) -> int:
        """How many bytes at the end of a stream begin a character that goes on."""
        return len(self._decoders[name].getstate()[0])

    def finish(self) -> list[tuple[str, str]]:
        """What was cut off at the end, by stream."""
        rest = [(name, decoder.decode(b"", final=True)) for name, decoder in self._decoders.items()]
        return [(name, text) for name, text in rest if text]
