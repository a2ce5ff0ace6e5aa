"""Answers of operations other than plain models: other statuses, text and streams of events."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
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
    """A success that has nothing to say, but in its headers."""

    STATUS: ClassVar[HTTPStatus]
    HEADERS: ClassVar[tuple[str, ...]] = ()

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that `HEADERS` names."""
        return {}


class Taken(Empty):
    """A message that has no answer."""

    STATUS = HTTPStatus.ACCEPTED


class Removed(Empty):
    """Something has ended."""

    STATUS = HTTPStatus.NO_CONTENT


@dataclass(frozen=True, slots=True)
class NotModified(Empty):
    """The caller has this version of a file already."""

    STATUS = HTTPStatus.NOT_MODIFIED
    HEADERS = ("ETag",)

    version: str

    @property
    def headers(self) -> Mapping[str, str]:
        """The version."""
        return {"ETag": f'"{self.version}"'}


@dataclass(frozen=True, slots=True)
class Described(Empty):
    """What a download of a file would say of it."""

    STATUS = HTTPStatus.OK
    HEADERS = ("Accept-Ranges", "ETag", "X-Paddock-Permissions", "X-Paddock-Modified")

    size: int
    permissions: int
    modified: int
    version: str

    @property
    def headers(self) -> Mapping[str, str]:
        """Size, version, permissions and time."""
        ranges, etag, permissions, modified = self.HEADERS
        return {
            "Content-Type": BYTES,
            "Content-Length": str(self.size),
            ranges: "bytes",
            etag: f'"{self.version}"',
            permissions: f"{self.permissions:04o}",
            modified: str(self.modified),
        }


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
    """An event of a stream; its data is a model, or JSON on one line.

    `retry`: milliseconds that a client waits before it connects again.
    """

    name: str
    data: Model | str
    id: int | None = None
    retry: int | None = None


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
