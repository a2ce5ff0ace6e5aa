"""Paddock through its Python client, on a control plane that already runs."""

from pathlib import Path

from paddock.client import Paddock, Session, Terminal
from paddock.client.faces import Async
from tests.bench.peers.driver import LINE, Options, require

_FILE, _TREE = "file", "tree"


class PaddockSandbox:
    """A session; everything is decided and recorded."""

    def __init__(self, session: Session[Async], sandbox_id: str) -> None:
        self._session = session
        self._terminal: Terminal[Async] | None = None
        self.container = f"paddock-{sandbox_id}"

    async def run(self, program: str) -> None:
        """`exec`."""
        status = (await self._session.exec(argv=[program])).exit_code
        require(status == 0, f"{program} ended with {status}")

    async def line(self) -> None:
        """A governed terminal's interaction."""
        if self._terminal is None:
            self._terminal = await self._session.terminals.open("python3")
        answer = await self._terminal.send("calculate", LINE)
        require(answer.status == "success", f"the line's answer: {answer.error}")

    async def send_file(self, local: Path) -> None:
        """`files.write`."""
        await self._session.files.write(_FILE, local.open("rb"))

    async def fetch_file(self, local: Path) -> None:
        """`files.download`."""
        await self._session.files.download(_FILE, local)

    async def send_tree(self, local: Path) -> None:
        """`files.upload_dir`."""
        await self._session.files.upload_dir(local, _TREE)

    async def fetch_tree(self, local: Path) -> None:
        """`files.download_dir`."""
        await self._session.files.download_dir(_TREE, local)

    async def close(self) -> None:
        """Ends the session and purges its workspace."""
        await self._session.close(purge=True)


class PaddockDriver:
    """Sessions of one level."""

    def __init__(self, options: Options) -> None:
        self._level, self._start = options.level, options.start
        self._paddock = Paddock(options.url, options.key)

    async def create(self) -> PaddockSandbox:
        """Creates a session."""
        session = await self._paddock.sessions.create(permission_level=self._level)
        sandbox = session.info.sandbox
        assert sandbox is not None
        require(sandbox.start == self._start, f"it was a {sandbox.start} start")
        return PaddockSandbox(session, sandbox.id)

    async def close(self) -> None:
        """Closes the connections to the control plane."""
        await self._paddock.close()
