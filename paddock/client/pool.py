"""The connections of a client to one control plane."""

import asyncio
from dataclasses import dataclass
from ssl import SSLContext

import aiohttp
from yarl import URL

from paddock.client.blocking import BlockingConnections
from paddock.client.connections import Connections
from paddock.client.resolver import Resolver
from paddock.client.retry import RetryPolicy
from paddock.client.sockets import lasting_socket

_AGENT = "paddock-python"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a client, in seconds and counts."""

    timeout: float
    retry: RetryPolicy
    reconnect: float
    ssl: SSLContext | None


class Pool:
    """The connections to one control plane. They are opened on use, and closed once.

    Attributes:
        url: of the control plane, without a slash at the end.
        prefix: the path of that URL.
        plain: it has no TLS.
        fixed: the lines of a request's head that are always the same.
    """

    def __init__(self, url: str, options: Options) -> None:
        parsed = _base_url(url)
        self.url = str(parsed).rstrip("/")
        self.prefix = parsed.raw_path.rstrip("/")
        self.origin = str(parsed.origin())
        self.plain = parsed.scheme == "http"
        self.fixed = (
            f"Host: {parsed.host_port_subcomponent}\r\nUser-Agent: {_AGENT}\r\n"
            "Accept: */*\r\nAccept-Encoding: identity\r\n"
        )
        self.options = options
        self._place = (parsed.raw_host or "", parsed.port or 80)
        self._http: aiohttp.ClientSession | None = None
        self._lean: dict[asyncio.AbstractEventLoop, Connections] = {}
        self._blocking = BlockingConnections(*self._place)
        self._closed = False

    def http(self) -> aiohttp.ClientSession:
        """aiohttp's connections. Raises: RuntimeError after `close`."""
        self._check_open()
        if self._http is None:
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    ssl=self.options.ssl or True,
                    socket_factory=lasting_socket,
                    resolver=Resolver(),
                    limit=0,
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                # The download's length must be that of the file.
                headers={"Accept-Encoding": "identity", "User-Agent": _AGENT},
            )
            # It would send a PUT again after a lost connection, and append a text twice.
            self._http._retry_connection = False
        return self._http

    def lean(self) -> Connections:
        """The connections for small messages of this event loop.

        Raises: RuntimeError after `close`.
        """
        self._check_open()
        loop = asyncio.get_running_loop()
        found = self._lean.get(loop)
        if found is None:
            # Those of a loop that has ended can't be used any more.
            self._lean = {each: its for each, its in self._lean.items() if not each.is_closed()}
            found = self._lean[loop] = Connections(*self._place)
        return found

    def blocking(self) -> BlockingConnections:
        """The connections for small messages of threads without an event loop.

        Raises: RuntimeError after `close`.
        """
        self._check_open()
        return self._blocking

    async def close(self) -> None:
        """Closes every connection."""
        self._closed = True
        self._blocking.close()
        if (lean := self._lean.pop(asyncio.get_running_loop(), None)) is not None:
            await lean.close()
        if self._http is not None:
            await self._http.close()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this client is closed")


def _base_url(text: str) -> URL:
    try:
        url = URL(text)
        proper = url.scheme in ("http", "https") and bool(url.host) and url.user is None
    except ValueError:
        proper = False
    if not proper or url.query_string or url.fragment:
        raise ValueError(f"the URL must be http://host:port or https://host:port, not {text!r}")
    return url
