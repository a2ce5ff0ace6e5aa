"""Validates the output of commands as agents send it. Pure functions."""

import base64
from typing import Any

from sandbox_agent.decide.protocol import MOST_EVENT_OUTPUT_BYTES, MOST_EVENT_OUTPUT_CHUNKS, Message

# Numbers of an agent must fit JSON numbers of every reader.
_OFFSETS = 2**53
# The year 10000, in seconds since the epoch.
_TIMES = 253_402_300_800

# A stream, the offset at which the bytes begin, and the bytes.
Chunk = tuple[str, int, bytes]


def end_output(params: Message) -> tuple[Chunk, ...] | None:
    """The output in the event of a command's end; None if it has none.

    Raises ValueError for malformed output, or for more than such an event may contain.
    """
    output = params.get("output")
    if output is None:
        return None
    if not isinstance(output, list) or len(output) > MOST_EVENT_OUTPUT_CHUNKS:
        raise ValueError("output must be a short list")
    chunks = tuple(map(parse_chunk, output))
    if sum(len(data) for _, _, data in chunks) > MOST_EVENT_OUTPUT_BYTES:
        raise ValueError(f"output must have at most {MOST_EVENT_OUTPUT_BYTES} bytes")
    return chunks


def parse_page(answer: Message) -> tuple[list[Chunk], list[float | None], int]:
    """A page of output, when each chunk was read, and the offset of the next page.

    Times are seconds since the epoch, None where the agent does not know or tell them. Raises:
    KeyError, TypeError, ValueError if it is malformed.
    """
    chunks = [parse_chunk(item[:3]) for item in answer["chunks"]]
    times = [_time(item[3:]) for item in answer["chunks"]]
    following = _offset(answer["next"])
    if any(offset + len(data) > following for _, offset, data in chunks):
        raise ValueError("output must end where the next page begins")
    return chunks, times, following


def _time(rest: Any) -> float | None:
    if not rest or rest == [None]:
        return None
    (value,) = rest
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _TIMES:
        raise ValueError("a time must be in seconds since the epoch")
    return float(value)


def parse_chunk(item: Any) -> Chunk:
    """A chunk of output as it is transmitted. Raises: ValueError."""
    if not isinstance(item, list) or len(item) != 3:
        raise ValueError("a chunk of output must be its stream, offset and data")
    stream, offset, data = item
    if not isinstance(stream, str) or not isinstance(data, str):
        raise ValueError("a chunk of output must have a stream and data")
    return stream, _offset(offset), base64.b64decode(data)


def _offset(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _OFFSETS:
        raise ValueError("output must begin at an offset")
    return value
