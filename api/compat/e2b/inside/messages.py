"""The requests inside a sandbox, in protobuf's JSON: camelCase, bytes as base64, null as absent."""

import base64
import binascii
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

MOST_BYTES = 8 * 2**20
_MOST_SIDE = 500


def _bytes(value: Any) -> bytes:
    """Base64 in either alphabet, with or without padding."""
    if not isinstance(value, str):
        raise ValueError("must be base64")
    text = value.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("must be base64") from None


Bytes = Annotated[bytes, BeforeValidator(_bytes)]
_Tag = Annotated[str, Field(max_length=1024)]
_Number = Annotated[int, Field(ge=0, lt=2**32)]


class Message(BaseModel):
    """A message: unknown members are ignored, and names are as in protobuf or in camelCase."""

    model_config = ConfigDict(
        extra="ignore",
        alias_generator=to_camel,
        populate_by_name=True,
        hide_input_in_errors=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if each is not None}


class Empty(Message):
    """Nothing."""


class Selector(Message):
    """A process by its number or its tag."""

    pid: _Number | None = None
    tag: str | None = None


class OfProcess(Message):
    """Something about a process."""

    process: Selector


class Config(Message):
    """What is to run."""

    cmd: str = ""
    args: list[str] = []
    envs: dict[str, str] = {}
    cwd: str | None = None


class Size(Message):
    """A terminal's size."""

    cols: Annotated[int, Field(ge=0, le=_MOST_SIDE)] = 0
    rows: Annotated[int, Field(ge=0, le=_MOST_SIDE)] = 0


class Pty(Message):
    """A terminal."""

    size: Size = Field(default_factory=Size)


class Start(Message):
    """Starts a process; without `stdin` its standard input stays open, as for older clients."""

    process: Config
    pty: Pty | None = None
    tag: _Tag | None = None
    stdin: bool = True


class Update(OfProcess):
    """Changes a terminal's size."""

    pty: Pty | None = None


class Input(Message):
    """What a process is given."""

    stdin: Bytes | None = None
    pty: Bytes | None = None


class SendInput(OfProcess):
    """Input for a process."""

    input: Input


class StreamData(Message):
    """A piece of a stream of input."""

    input: Input


class StreamInput(Message):
    """A message of a stream of input: which process, or what it gets, or a sign of life."""

    start: OfProcess | None = None
    data: StreamData | None = None


class SendSignal(OfProcess):
    """A signal by name or number."""

    signal: str | int = ""


class Path(Message):
    """A path."""

    path: str = ""


class ListDir(Path):
    """A directory; `depth` 0 is one level."""

    depth: int = 0


class Move(Message):
    """Two paths."""

    source: str = ""
    destination: str = ""


class Watch(Path):
    """A directory; with `include_entry`, each event tells of the file."""

    recursive: bool = False
    include_entry: bool = False


class Watcher(Message):
    """A watcher's id."""

    watcher_id: str = ""
