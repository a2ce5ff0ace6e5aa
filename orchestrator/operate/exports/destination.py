"""What all destinations of exports have in common."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class ExportError(Exception):
    """A batch was not acknowledged; the message says why, in one line without secrets."""


class ExportedEvent(NamedTuple):
    """An event in the form of an export.

    `text` is JSON in ASCII on one line, without the line feed. `time` is RFC 3339 with
    microseconds; `severity` is OCSF's.
    """

    text: bytes
    time: str
    operation: str
    severity: int


class Destination(Protocol):
    """Where an export sends its batches."""

    async def send(self, events: Sequence[ExportedEvent]) -> None:
        """Returns when all are taken, in their order. What is sent again may be there twice.

        It may be cancelled. Raises: ExportError.
        """

    async def close(self) -> None:
        """Releases what it has open."""
