"""A conversation with a session by the Model Context Protocol."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from paddock.client.answers import object_of
from paddock.client.errors import NotPaddockError
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.retry import PASSING, Patience

_HEADER = "Mcp-Session-Id"
_SILENCE_SECONDS = 45.0


class Mcp(Face[F]):
    """Messages of the protocol, as objects; the conversation begins with `initialize`.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`. NotFoundError: the conversation has ended, or none was begun.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/mcp"
        self._conversation: dict[str, str] = {}
        # The latest event that `listen` got in this conversation.
        self._heard: int | str | None = None

    @method
    async def initialize(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Begins a conversation with that message, and returns the answer."""
        begun: dict[str, str] = {}

        def heed(headers: Mapping[str, str]) -> None:
            begun[_HEADER] = headers.get(_HEADER, "")

        opening = self._api.open(
            "POST",
            self._path,
            content_type="application/json",
            silence=_SILENCE_SECONDS,
            heed=heed,
            json=message,
        )
        async with opening as pieces:
            text = b"".join([piece async for piece in pieces])
        self._conversation, self._heard = begun, None
        answer = object_of(text)
        if answer is None:
            raise NotPaddockError("the server does not answer with a message")
        return answer

    @stream
    async def request(self, message: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        """The messages that answer a request: notifications of its progress, then the answer.

        If the connection breaks, they are read on, where the protocol's version has that: from
        2025-11-25 on.
        """
        sending = self._api.events(
            "POST", self._path, body=dict(message), headers=self._conversation
        )
        patience, heard = Patience(self._api.options.reconnect), None
        while True:
            try:
                async with sending as events:
                    async for event in events:
                        patience.renew()
                        heard = heard if event.id is None else event.id
                        if event.data:
                            yield event.data
            except PASSING as error:
                if heard is None:
                    raise
                delay = patience.delay(error)
            else:
                return
            await asyncio.sleep(delay)
            sending = self._api.events("GET", self._path, after=heard, headers=self._conversation)

    @method
    async def notify(self, message: Mapping[str, Any]) -> None:
        """Sends a notification."""
        sending = self._api.open(
            "POST",
            self._path,
            content_type="application/octet-stream",
            silence=_SILENCE_SECONDS,
            headers=self._conversation,
            json=message,
        )
        async with sending:
            return

    @stream
    async def listen(self) -> AsyncGenerator[dict[str, Any], None]:
        """The server's notifications until the conversation or the connection ends.

        It begins with those that the call before did not get, where the version has that.
        """
        listening = self._api.events(
            "GET", self._path, after=self._heard, headers=self._conversation
        )
        async with listening as events:
            async for event in events:
                self._heard = self._heard if event.id is None else event.id
                if event.data:
                    yield event.data
