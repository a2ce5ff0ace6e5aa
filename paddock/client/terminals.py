"""Terminals: interactive tools of a session that receive declared lines, one at a time."""

from typing import Any

from paddock.client.answers import items, read
from paddock.client.faces import F, Face, Link, method
from paddock.client.live_terminals import LiveTerminal, opened
from paddock.client.requests import ENGINE_SECONDS, segment
from paddock.contract.terminals import Interaction
from paddock.contract.terminals import Terminal as TerminalInfo

# A manifest may allow its tool an hour for an answer.
_ANSWER_SECONDS = 3660.0
_SILENCE_SECONDS = 60.0


class Terminal(Face[F]):
    """One tool on its own terminal.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.

    Attributes:
        id: the terminal's id.
        info: the terminal as of the last answer; `refresh` requests it again.
    """

    def __init__(
        self, link: Link, path: str, info: TerminalInfo, incarnation: int | None = None
    ) -> None:
        super().__init__(link)
        self.id = info.id
        self.info = info
        self._path = f"{path}/{segment(info.id)}"
        self._which = {"incarnation": incarnation}

    def __repr__(self) -> str:
        return f"<Terminal {self.id} {self.info.tool} {self.info.status}>"

    @method
    async def send(self, command: str, text: str, *, wait: float = 0) -> Interaction:
        """Sends one line if the tool's manifest and the operator's rules allow it.

        Args:
            command: the tool's command for this line, by name.
            text: the line, without a line break at its end.
            wait: seconds to wait for a person, if the line needs approval. While undecided, the
                status is `pending`, and sending the same line again continues to wait.

        Raises: PermissionDeniedError with the `rule`, BusyError while the answer to an earlier line
        is incomplete, ConflictError if the terminal has ended.
        """
        body = {"tool": f"{self.info.tool}.{command}", "command": text, "wait": wait}
        answer = await self._api.json(
            "POST", f"{self._path}/interactions", body=body, timeout=_ANSWER_SECONDS + wait
        )
        return read(Interaction, answer)

    @method
    async def transcript(self) -> str:
        """What has happened in the terminal, line by line; also after its end."""
        async with self._api.open(
            "GET",
            f"{self._path}/transcript",
            params=self._which,
            content_type="text/plain",
            silence=_SILENCE_SECONDS,
        ) as pieces:
            return b"".join([piece async for piece in pieces]).decode()

    @method
    async def recording(self) -> bytes:
        """What was shown and typed, as asciicast v2; also after its end.

        Raises: NotFoundError if the terminal is not recorded.
        """
        async with self._api.open(
            "GET",
            f"{self._path}/recording",
            params=self._which,
            content_type="application/x-asciicast",
            silence=_SILENCE_SECONDS,
        ) as pieces:
            return b"".join([piece async for piece in pieces])

    @method
    async def refresh(self) -> TerminalInfo:
        """The current terminal."""
        return self._take(await self._api.json("GET", self._path, params=self._which))

    @method
    async def close(self) -> TerminalInfo:
        """Ends the tool; an ended terminal stays unchanged."""
        return self._take(await self._api.json("DELETE", self._path, timeout=ENGINE_SECONDS))

    def _take(self, view: dict[str, Any]) -> TerminalInfo:
        self.info = read(TerminalInfo, view)
        return self.info


class Terminals(Face[F]):
    """The terminals of a session; past ones can be read long after its end."""

    def __init__(self, link: Link, path: str, incarnation: int | None = None) -> None:
        super().__init__(link)
        self._live = f"{path}/terminal"
        self._path = f"{path}/ptys"
        self._incarnation = incarnation

    @method
    async def open(self, tool: str) -> Terminal[F]:
        """Opens a terminal for that tool; returns at its first prompt.

        Raises: NotFoundError for an unknown tool, PermissionDeniedError with the `rule` if the
        session may not open it, ConflictError if it does not reach its prompt, BusyError if too
        much runs.
        """
        answer = await self._api.json(
            "POST", self._path, body={"tool": tool}, timeout=_ANSWER_SECONDS
        )
        return Terminal(self._link, self._path, read(TerminalInfo, answer))

    @method
    async def live(
        self,
        id: str | None = None,
        *,
        columns: int | None = None,
        rows: int | None = None,
        watch: bool = False,
    ) -> LiveTerminal[F]:
        """A live view of a terminal, or a new shell of the session.

        Args:
            id: the terminal; None: a new shell, where the session's level allows any command.
            columns: its width, for all who watch it; None: as it is, or 80.
            rows: its height; None: as it is, or 24.
            watch: nothing will be written.

        Raises: PermissionDeniedError with the `rule`, NotFoundError, ConflictError if the terminal
        has ended, BusyError if too many are open.
        """
        params = {"pty": id, "cols": columns, "rows": rows, "watch": watch}
        return await opened(self._link, self._live, params)

    @method
    async def get(self, id: str) -> Terminal[F]:
        """A past or present terminal of the session. Raises: NotFoundError."""
        return self._terminal(await self._get(f"{self._path}/{segment(id)}"))

    @method
    async def list(self) -> tuple[Terminal[F], ...]:
        """The past and present terminals of the session, oldest first."""
        return tuple(self._terminal(each) for each in items(await self._get(self._path)))

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._api.json("GET", path, params={"incarnation": self._incarnation})

    def _terminal(self, view: dict[str, Any]) -> Terminal[F]:
        return Terminal(self._link, self._path, read(TerminalInfo, view), self._incarnation)
