"""Open ports of a session."""

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, Link, method
from paddock.contract.ports import DEFAULT_PORT_SECONDS, OpenedPort, Port


class Ports(Face[F]):
    """The ports of a session's sandbox that clients may reach.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`. A session's handle can only list them.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/ports"

    @method
    async def open(self, port: int, *, seconds: int = DEFAULT_PORT_SECONDS) -> OpenedPort:
        """Opens a port for that time; the links in the answer reach it without a key.

        `host_link` is for browsers, if it is not None: there, pages may name their scripts from the
        root, and store something. `link` is for programs, and works everywhere.

        An open port gets the new time. Raises: BusyError if the session has too many, ConflictError
        if this control plane serves no ports.
        """
        body = {"port": port, "seconds": seconds}
        return read(OpenedPort, await self._api.json("POST", self._path, body=body))

    @method
    async def list(self) -> tuple[Port, ...]:
        """The open ports."""
        return read_items(Port, await self._api.json("GET", self._path))

    @method
    async def close(self, port: int) -> Port:
        """Ends a port's connections at once. Raises: NotFoundError if it is not open."""
        return read(Port, await self._api.json("DELETE", f"{self._path}/{port}"))
