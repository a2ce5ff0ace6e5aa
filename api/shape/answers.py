"""Answers of operations other than plain models: other statuses, text, bytes and streams."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import ClassVar, Generic, NamedTuple, TypeVar

from orchestrator.ground.errors import PaddockError
from orchestrator.work.terminals.shells import Watched
from paddock.contract.base import Model

M = TypeVar("M", bound=Model)

JSON = "application/json"
BYTES = "application/octet-stream"
TEXT = "text/plain"
LINES = "application/jsonl"
RECORDING = "application/x-asciicast"
NOTHING = ""
# Proxies commonly close an idle connection after a minute.
HEARTBEAT_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Answer(Generic[M]):
    """A model with a status of its own."""

    STATUS: ClassVar[HTTPStatus]
    HEADERS: ClassVar[tuple[str, ...]] = ()

    model: M

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that `HEADERS` names."""
        return {}


class Made(Answer[M]):
    """Something was created."""

    STATUS = HTTPStatus.CREATED


class Accepted(Answer[M]):
    """The work continues, or waits."""

    STATUS = HTTPStatus.ACCEPTED


@dataclass(frozen=True, slots=True)
class Conversed(Answer[M]):
    """A message of a conversation, whose id is in the header `Mcp-Session-Id`."""

    STATUS = HTTPStatus.OK

    conversation_id: str

    @property
    def headers(self) -> Mapping[str, str]:
        """The conversation's id."""
        return {"Mcp-Session-Id": self.conversation_id}


class Empty:
    """A success that has nothing to say."""

    STATUS: ClassVar[HTTPStatus]


class Taken(Empty):
    """A message that has no answer."""

    STATUS = HTTPStatus.ACCEPTED


class Removed(Empty):
    """Something has ended."""

    STATUS = HTTPStatus.NO_CONTENT


class Unready(Answer[M]):
    """The service is unavailable."""

    STATUS = HTTPStatus.SERVICE_UNAVAILABLE


@dataclass(frozen=True, slots=True)
class Created(Answer[M]):
    """Something with a path of its own was created."""

    STATUS = HTTPStatus.CREATED
    HEADERS = ("Location",)

    location: str

    @property
    def headers(self) -> Mapping[str, str]:
        """The new path."""
        return {"Location": self.location}


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text."""

    MEDIA: ClassVar[str] = TEXT

    text: str | bytes
    content_type: str = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Download:
    """A file's bytes: exactly `size`, or the connection is cut. `held` is closed at the end."""

    MEDIA: ClassVar[str] = BYTES
    HEADERS: ClassVar[tuple[str, ...]] = ("X-Paddock-Permissions", "X-Paddock-Modified")

    size: int
    permissions: int
    modified: int | None
    chunks: AsyncIterator[bytes]
    held: ExitStack


@dataclass(frozen=True, slots=True)
class Verified(Download):
    """A file's bytes, whose hash is known."""

    HEADERS: ClassVar[tuple[str, ...]] = (*Download.HEADERS, "ETag")

    content_hash: str


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command prints; the connection is cut where bytes are missing.

    `held` is closed at the end.
    """

    MEDIA: ClassVar[str] = BYTES

    chunks: AsyncIterator[bytes]
    held: ExitStack


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive's bytes, of unknown number. `held` is closed at the end.

    `skipped` entries are left out; `skipped_names` are the first of them.
    """

    MEDIA: ClassVar[str] = BYTES
    HEADERS: ClassVar[tuple[str, ...]] = ("X-Paddock-Skipped", "X-Paddock-Skipped-Names")

    chunks: AsyncIterator[bytes]
    skipped: int
    skipped_names: Sequence[str]
    held: ExitStack


@dataclass(frozen=True, slots=True)
class Recording:
    """A terminal's recording: asciicast v2. `held` is closed at the end."""

    MEDIA: ClassVar[str] = RECORDING

    chunks: AsyncIterator[bytes]
    held: ExitStack


@dataclass(frozen=True, slots=True)
class Attached(Generic[M]):
    """A WebSocket that shows a terminal; text frames are models. `held` is closed at the end."""

    STATUS: ClassVar[HTTPStatus] = HTTPStatus.SWITCHING_PROTOCOLS

    watched: Watched
    held: ExitStack


@dataclass(frozen=True, slots=True)
class Lines(Generic[M]):
    """Objects as JSON, one per line. `held` is closed at the end."""

    MEDIA: ClassVar[str] = LINES

    lines: AsyncIterator[str]
    held: ExitStack


class Event(NamedTuple):
    """An event of a stream; its data is a model, or JSON on one line."""

    name: str
    data: Model | str
    id: int | None = None


@dataclass(frozen=True, slots=True)
class EventStream:
    """Events as they happen; None is a heartbeat.

    `held` is closed after the last event; if the client has gone, it receives the error.
    """

    events: AsyncGenerator[Event | None]
    held: ExitStack = field(default_factory=ExitStack)


@dataclass(frozen=True, slots=True)
class Exchange(Generic[M]):
    """A WebSocket on which a client asks for one thing after another; text frames are models.

    `asked` begins what a text frame asks for; it raises the errors that refuse the frame, and so do
    the events before the first one. `frame` makes an event the server's frame, and `refusal` makes
    an error an event.
    """

    STATUS: ClassVar[HTTPStatus] = HTTPStatus.SWITCHING_PROTOCOLS

    asked: Callable[[str], AsyncGenerator[Event | None]]
    frame: Callable[[Event], M]
    refusal: Callable[[PaddockError], Event]
    held: ExitStack


# The chunks of a binary request body.
Upload = AsyncIterator[bytes]
