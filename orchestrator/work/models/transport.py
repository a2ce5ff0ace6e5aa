"""The connections to endpoints: sends nothing that was not asked for, and reads within bounds."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence

import aiohttp
from yarl import URL

from orchestrator.ground.http_connector import BoundedConnector
from orchestrator.ground.http_post import NameLookups
from orchestrator.work.models.errors import ModelError, ModelFailure

# The errors of a call that gets no answer in HTTP; the call may have been sent.
CONNECTION_FAILURES = (aiohttp.ClientError, OSError, ValueError)
_CONNECT_SECONDS = 10.0
# For all calls at once; more calls wait for a connection.
_MOST_CONNECTIONS = 1000
# Bytes of one streamed answer, in which a token takes some hundred. A line counts as at least
# `_LEAST_LINE` bytes, because handling it costs as much.
_MOST_BYTES = 16 * 1024 * 1024
_LEAST_LINE = 64
# What is taken from a connection in one slice of the event loop.
PIECE = 32 * 1024
# Bytes of an answer that is not streamed: at most 1 MiB of text, which escapes may double.
MOST_WHOLE = 2 * 1024 * 1024


class EndpointAnswer:
    """An answer whose body has not been read. Its owner closes it."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers  # whatever the case of their names

    async def pieces(self) -> AsyncGenerator[bytes]:
        """The body as it comes, in small pieces.

        Raises: ModelError if it is too long, and CONNECTION_FAILURES.
        """
        if self.headers.get("content-encoding", "identity") != "identity":
            raise ModelError(ModelFailure.BROKEN, "the endpoint compresses its answer")
        size = 0
        async for part in self._response.content.iter_any():
            for place in range(0, len(part), PIECE):
                piece = part[place : place + PIECE]
                size += max(len(piece), piece.count(b"\n") * _LEAST_LINE)
                if size > _MOST_BYTES:
                    raise _too_large()
                yield piece

    async def whole(self, most: int = MOST_WHOLE) -> bytes:
        """All of it. Raises: the errors of `pieces`."""
        found = bytearray()
        async for piece in self.pieces():
            found += piece
            if len(found) > most:
                raise _too_large()
        return bytes(found)

    def close(self) -> None:
        """Closes the connection, unless all of it was read: then another call may use it."""
        self._response.release()


class Connections:
    """HTTPS with the host's authorities, without proxies and credentials of the environment."""

    def __init__(self) -> None:
        # Connecting is limited here, and all else by each call.
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        self._client = aiohttp.ClientSession(
            connector=BoundedConnector(NameLookups(), limit=_MOST_CONNECTIONS),
            timeout=timeout,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
        )

    async def post(self, url: str, key: str, body: Sequence[bytes]) -> EndpointAnswer:
        """The answer to a JSON body. Redirects are not followed. Raises: CONNECTION_FAILURES."""
        headers = {
            "Authorization": f"Bearer {key}",
            "User-Agent": "paddock",
            "Content-Type": "application/json",
            "Content-Length": str(sum(map(len, body))),
            "Accept": "application/json, text/event-stream",
            # A compressed answer could have any size.
            "Accept-Encoding": "identity",
        }
        sent = URL(f"{url.rstrip('/')}/chat/completions", encoded=True)
        return EndpointAnswer(
            await self._client.post(sent, headers=headers, data=_sent(body), allow_redirects=False)
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()


def never_sent(error: BaseException) -> bool:
    """Whether there was no connection, so the endpoint knows nothing of the call."""
    return isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)


async def _sent(body: Sequence[bytes]) -> AsyncIterator[bytes]:
    for part in body:
        yield part


def _too_large() -> ModelError:
    return ModelError(ModelFailure.TOO_LARGE, "the endpoint sends more than an answer has")
