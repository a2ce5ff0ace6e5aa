"""What a node sends to another one for a session: an envelope, then the snapshot's archive. Pure.

Four bytes say how long the envelope is. It is JSON, with what the session goes on with: its secrets
are in it, so it is neither stored nor logged.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from pydantic import TypeAdapter
from pydantic import ValidationError as SchemaError

from orchestrator.ground import strict_json
from orchestrator.ground.errors import ValidationError
from orchestrator.state.moving.continued import Continued

# Secrets of 64 KiB, a hundred of the proxy, and rules of the way out are less.
MOST_BYTES = 4 * 1024 * 1024
_LENGTH = 4
_MOST_VALUES = 20_000


@dataclass(frozen=True, slots=True)
class Envelope:
    """`place` is the number of the session's place on its node."""

    place: int
    continued: Continued

    def encoded(self) -> bytes:
        """With its length."""
        data = _ADAPTER.dump_json(self)
        return len(data).to_bytes(_LENGTH) + data


_ADAPTER = TypeAdapter(Envelope)


async def opened(upload: AsyncIterator[bytes]) -> tuple[Envelope, AsyncIterator[bytes]]:
    """The envelope, and the archive that follows it. Raises: ValidationError."""
    read = bytearray()
    wanted = _LENGTH
    async for piece in upload:
        read += piece
        if len(read) >= _LENGTH:
            wanted = _LENGTH + int.from_bytes(read[:_LENGTH])
            if wanted > MOST_BYTES:
                raise ValidationError("the envelope is too long", field="envelope")
        if len(read) >= wanted > _LENGTH:
            return _read(bytes(read[_LENGTH:wanted])), _rest(bytes(read[wanted:]), upload)
    raise ValidationError("the envelope is cut", field="envelope")


async def _rest(first: bytes, upload: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for piece in upload:
        yield piece


def _read(data: bytes) -> Envelope:
    try:
        strict_json.parse(data, "the envelope", _MOST_VALUES)
        return _ADAPTER.validate_json(data, strict=True)
    except strict_json.JsonError as error:
        raise ValidationError(str(error), field="envelope") from None
    except SchemaError as error:
        where = ".".join(map(str, error.errors(include_url=False, include_input=False)[0]["loc"]))
        raise ValidationError(f"the envelope is not one: {where[:128]}", field="envelope") from None
