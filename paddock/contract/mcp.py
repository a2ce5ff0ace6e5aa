"""Messages of the Model Context Protocol: JSON-RPC 2.0, one object each."""

from typing import Annotated, Any, Literal

from pydantic import Field

from paddock.contract.base import Model, example
from paddock.contract.requests import LARGEST_BODY, Body, Query
from paddock.contract.shells import DEFAULT_SHELL, ShellName

_RequestId = Annotated[str, Field(max_length=256)] | int

_Members = Annotated[dict[str, Any], Field(max_length=64)]


class McpMessage(Body):
    """A request (`id` and `method`), a notification (`method`), or a client's answer."""

    MOST_BYTES = LARGEST_BODY

    jsonrpc: Literal["2.0"]
    id: _RequestId | None = None
    method: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    params: _Members = Field(default_factory=dict)
    result: _Members | None = None
    error: _Members | None = None


class McpReply(Model):
    """An answer (`id` with `result` or `error`), or a notification (`method` and `params`)."""

    SPARSE = True

    model_config = example({"jsonrpc": "2.0", "id": 1, "result": {}})

    jsonrpc: Literal["2.0"]
    id: str | int | None = Field(default=None, description="The request's.")
    method: str | None = Field(default=None, description="The notification's kind.")
    params: dict[str, Any] | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None


class McpContent(Body):
    """The content of a file: text, or bytes in Base64."""

    text: str | None = Field(default=None, description="The content as text.")
    base64: str | None = Field(default=None, description="The content in Base64, if it is binary.")


class McpRange(Query):
    """The part of a file to read."""

    offset: Annotated[int, Field(ge=0)] = Field(default=0, description="The first byte to read.")


class McpShell(Query):
    """A shell of the session."""

    shell: ShellName = Field(default=DEFAULT_SHELL, description="The shell's name.")


class McpCommand(Query):
    """A command of the session."""

    command_id: Annotated[str, Field(min_length=1, max_length=64)]
