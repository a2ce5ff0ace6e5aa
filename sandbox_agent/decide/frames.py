"""The frames of the protocol, and the JSON-RPC messages in them. Pure."""

import json
import math
import struct
from typing import Any

from sandbox_agent.decide.protocol import MAX_FRAME_BYTES, Message

_LENGTH = struct.Struct(">I")
# The beginning of a frame with bytes: a NUL and the length of its JSON.
_WITH_BYTES = struct.Struct(">cI")
_NUL = b"\0"


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:32]} is not a JSON number")
    return number


# Made once, because each frame would pay for its own.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False)
_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


class FrameError(ValueError):
    """The peer sent bytes that are not a valid frame."""


def encode(message: Message) -> bytes:
    """Encodes one frame; the member `data` of its params or result may be bytes.

    Raises: FrameError if the message is over MAX_FRAME_BYTES.
    """
    carrier = "params" if "params" in message else "result"
    members = message.get(carrier)
    data = members.get("data") if isinstance(members, dict) else None
    if not isinstance(data, bytes):
        return _framed(_json(message))
    rest = {name: value for name, value in message[carrier].items() if name != "data"}
    text = _json({**message, carrier: rest})
    return _framed(_WITH_BYTES.pack(_NUL, len(text)) + text + data)


def _json(message: Message) -> bytes:
    text = _ENCODER.encode(message)
    # A lone surrogate can't be UTF-8; its backslash escape is also its JSON escape.
    return text.encode("utf-8", "backslashreplace")


def _framed(body: bytes) -> bytes:
    if len(body) > MAX_FRAME_BYTES:
        raise FrameError(f"frame of {len(body)} bytes is over {MAX_FRAME_BYTES}")
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Finds the messages in a stream of bytes, which may be split anywhere."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages completed by `data`. Raises: FrameError; the connection is then unusable."""
        self.add(data)
        messages: list[Message] = []
        while (body := self.take()) is not None:
            messages.append(parse(body))
        return messages

    def add(self, data: bytes) -> None:
        """Keeps received bytes for `take`."""
        self._buffer += data

    def take(self, most: int = MAX_FRAME_BYTES) -> bytes | None:
        """The next frame's body, or None until it is complete.

        Raises: FrameError if it has more than `most` bytes, as soon as that is known.
        """
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > most:
            raise FrameError(f"frame of {length} bytes is over {most}")
        end = _LENGTH.size + length
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as received:
            body = bytes(received[_LENGTH.size : end])
        del self._buffer[:end]
        return body


def split(body: bytes) -> tuple[bytes, bytes | None]:
    """The JSON of one frame, and its bytes if it carries any. Raises: FrameError."""
    if not body.startswith(_NUL):
        return body, None
    if len(body) < _WITH_BYTES.size:
        raise FrameError("frame is cut")
    _, length = _WITH_BYTES.unpack_from(body)
    end = _WITH_BYTES.size + length
    if end > len(body):
        raise FrameError("frame is cut")
    return body[_WITH_BYTES.size : end], body[end:]


def parse(body: bytes) -> Message:
    """Parses the message of one frame: JSON with finite numbers only. Raises: FrameError."""
    text, data = split(body)
    try:
        message = _DECODER.decode(text.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise FrameError(f"frame is not JSON: {error}") from None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise FrameError("frame is not a JSON-RPC 2.0 object")
    if data is not None:
        carrier = message.get("params", message.get("result"))
        if not isinstance(carrier, dict):
            raise FrameError("frame has bytes that belong to nothing")
        carrier["data"] = data
    return message


def request(request_id: int, method: str, params: Message) -> Message:
    """A request; its answer is a `result` or `failure` with the same id."""
    return {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}


def notification(method: str, params: Message) -> Message:
    """A message without an answer."""
    return {"jsonrpc": "2.0", "method": method, "params": params}


def result(request_id: Any, value: Message) -> Message:
    """The answer to a successful request."""
    return {"jsonrpc": "2.0", "id": request_id, "result": value}


def failure(request_id: Any, code: str, message: str, rule: str | None = None) -> Message:
    """The answer to a failed request; `code` is one of the API's error codes."""
    data = {"code": code, "rule": rule}
    return {
        "jsonrpc": "2.0",
        "id": request_id,
        "error": {"code": -32000, "message": message, "data": data},
    }
