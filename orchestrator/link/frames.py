"""How large a frame of an agent may be, and of how many values, by what it is. Pure."""

import json
from collections.abc import Collection
from typing import NamedTuple

from sandbox_agent.protocol import CHUNK_BYTES, MAX_FRAME_BYTES, FrameError, Message, parse

KIB = 1024


class Bounds(NamedTuple):
    """The bytes of a frame, and the values in its JSON."""

    bytes: int
    values: int


# Secrets make it long: 64 KiB of them, of which JSON may make six times as much.
HELLO = Bounds(512 * KIB, 4096)
# Without its secrets.
MOST_HELLO_REST = 64 * KIB
# Also what most requests are answered with.
EVENT = Bounds(128 * KIB, 4096)
# Bytes in base64, or up to 4,096 pieces of them.
_DATA = Bounds(2 * CHUNK_BYTES, 20 * KIB)
# 10,000 files have 70,000 values. To read so many takes some 20 ms, in which no other thread
# would run either.
_FILES = Bounds(MAX_FRAME_BYTES, 96 * KIB)
LARGE = {"output": _DATA, "pty.read": _DATA, "file.pull": _DATA, "file.list": _FILES}
# A name and a text for each value, and some.
_QUOTES_A_VALUE = 4


def bounds(accepted: bool, asked: Collection[str]) -> Bounds:
    """Those of the next frame: an agent that was `accepted` may answer what it was asked.

    `asked`: the methods of LARGE that are not answered yet.
    """
    if not accepted:
        return HELLO
    return max((EVENT, *(LARGE[method] for method in asked)))


def parse_frame(body: bytes, allowed: Bounds = _FILES) -> Message:
    """The message of one frame. Raises: FrameError, also where it would take long to read."""
    if len(body) > allowed.bytes:
        raise FrameError(f"frame of {len(body)} bytes where at most {allowed.bytes} were expected")
    if _too_many(body, allowed.values):
        raise FrameError(f"frame of over {allowed.values} values")
    return parse(body)


def _too_many(body: bytes, most: int) -> bool:
    """Whether there are more values; counted by a few passes, whatever the bytes are."""
    if _values(body) <= most:
        return False
    # Some may be in texts. Escaped characters are of those, and a quote that is left ends one.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > most * _QUOTES_A_VALUE:
        return True
    return _values(b"".join(plain.split(b'"')[0::2])) > most


def _values(body: bytes) -> int:
    """No fewer than the values in JSON of these bytes; what strings have is counted, too."""
    return body.count(b",") + body.count(b"[") + body.count(b"{")


def size_of(value: object) -> int:
    """The bytes of a JSON value as it may have come, or fewer."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
