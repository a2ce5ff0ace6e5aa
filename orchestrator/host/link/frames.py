"""Limits of an agent's frames by kind: their size and the number of JSON values. Pure functions."""

import json
from collections.abc import Collection
from typing import NamedTuple

from orchestrator.ground.strict_json import count
from sandbox_agent.decide.frames import FrameError, parse, split
from sandbox_agent.decide.protocol import CHUNK_BYTES, MAX_FRAME_BYTES, Message

KIB = 1024


class Bounds(NamedTuple):
    """Limits of a frame: its size in bytes, and the values in its JSON.

    `data`: it may carry bytes besides its JSON.
    """

    bytes: int
    values: int
    data: bool = False


# Its secrets make it long: up to 64 KiB, which JSON may enlarge six times.
HELLO = Bounds(512 * KIB, 4096)
# The limit without its secrets.
MOST_HELLO_REST = 64 * KIB
# Also the limit of most answers.
EVENT = Bounds(128 * KIB, 4096)
# Its bytes are in base64, in up to 4,096 chunks of four values each.
_OUTPUT = Bounds(3 * CHUNK_BYTES, 24 * KIB)
_CHUNK = Bounds(CHUNK_BYTES + 4 * KIB, 4096, data=True)
# 10,000 files have 70,000 values. Parsing them takes about 20 ms, in which no other thread runs
# either.
_FILES = Bounds(MAX_FRAME_BYTES, 96 * KIB)
LARGE = {
    **{"output": _OUTPUT, "pty.read": _OUTPUT, "file.pull": _CHUNK},
    **dict.fromkeys(("file.list", "file.search", "file.patch", "file.changes"), _FILES),
}


def bounds(accepted: bool, asked: Collection[str]) -> Bounds:
    """The limits of the next frame. An agent that was `accepted` may answer requests.

    `asked`: the methods of LARGE that are not answered yet.
    """
    if not accepted:
        return HELLO
    if not asked:
        return EVENT
    possible = EVENT, *(LARGE[method] for method in asked)
    return Bounds(*map(max, zip(*possible, strict=True)))


def parse_frame(body: bytes, allowed: Bounds = _FILES) -> Message:
    """The message in a frame. Raises: FrameError, also if parsing it would take long."""
    if len(body) > allowed.bytes:
        raise FrameError(f"frame of {len(body)} bytes where at most {allowed.bytes} were expected")
    text, data = split(body)
    if data is not None and not allowed.data:
        raise FrameError("frame with bytes where none were expected")
    if count(text, allowed.values) > allowed.values:
        raise FrameError(f"frame with more than {allowed.values} values")
    return parse(body)


def size_of(value: object) -> int:
    """A lower bound of the bytes of a JSON value as received."""
    return len(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
