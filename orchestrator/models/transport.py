"""The connection to an endpoint: sends nothing that was not asked for, and reads within bounds."""

import ssl
from collections.abc import AsyncIterator

import httpx2

# The rest of what the client or its environment variables add is left out.
_SENT = frozenset({"host", "authorization", "content-type", "content-length", "accept"})
# Of one line, and of one answer: each token of a streamed one comes with some hundred bytes.
_MOST_LINE = 2 * 1024 * 1024
_MOST_BYTES = 16 * 1024 * 1024


class AnswerTooLargeError(Exception):
    """The endpoint sends more than any honest answer has."""


class EncodedAnswerError(Exception):
    """The endpoint compresses what was not to be compressed, so its size is unknown."""


class BoundedTransport(httpx2.AsyncBaseTransport):
    """HTTPS with the host's authorities, without proxies of the environment."""

    def __init__(self) -> None:
        self._inner = httpx2.AsyncHTTPTransport(
            verify=ssl.create_default_context(), trust_env=False
        )

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends the request with no more than the fields that it needs."""
        kept = [(name, value) for name, value in request.headers.items() if name in _SENT]
        request.headers = httpx2.Headers([*kept, ("accept-encoding", "identity")])
        response = await self._inner.handle_async_request(request)
        assert isinstance(response.stream, httpx2.AsyncByteStream)  # noqa: S101
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.stream.aclose()
            raise EncodedAnswerError
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Closes the connections."""
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, inner: httpx2.AsyncByteStream) -> None:
        self._inner = inner

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = line = 0
        async for piece in self._inner:
            size += len(piece)
            last = max(piece.rfind(b"\n"), piece.rfind(b"\r"))
            line = line + len(piece) if last < 0 else len(piece) - last - 1
            if size > _MOST_BYTES or line > _MOST_LINE:
                raise AnswerTooLargeError
            yield piece

    async def aclose(self) -> None:
        await self._inner.aclose()
