"""Terminals: interactive tools of a session, sent one declared line at a time."""

from typing import Any

from paddock.client.faces import F, Face, Link, method
from paddock.client.parsing import items, read
from paddock.client.requests import ENGINE_SECONDS, segment
from paddock.contract.terminals import Interaction
from paddock.contract.terminals import Terminal as TerminalInfo

# A manifest may give its tool an hour for an answer.
_ANSWER_SECONDS = 3660.0
_SILENCE_SECONDS = 60.0


class Terminal(Face[F]):
    """One tool on a terminal of its own.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.

    Attributes:
        id: the terminal's id.
        info: the terminal when the API told of it last; `refresh` asks again.
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
        """Sends one line, where the tool's manifest and the operator's rules allow it.

        Args:
            command: what the line is meant to be: one of the tool's commands, by its name.
            text: the line, without a line break at its end.
            wait: seconds to wait for a person, where the line needs one. While nobody has
                decided it is `pending`: the same line again goes on waiting.

        Raises: PermissionDeniedError with the `rule`, BusyError while the answer to an earlier
        line is not complete, ConflictError when the terminal has ended.
        """
        body = {"tool": f"{self.info.tool}.{command}", "command": text, "wait": wait}
        answer = await self._api.json(
            "POST", f"{self._path}/interactions", body=body, timeout=_ANSWER_SECONDS + wait
        )
        return read(Interaction, answer)

    @method
    async def transcript(self) -> str:
        """What happened in it so far, line by line; also after its end."""
        async with self._api.open(
            "GET",
            f"{self._path}/transcript",
            params=self._which,
            content_type="text/plain",
            silence=_SILENCE_SECONDS,
        ) as pieces:
            return b"".join([piece async for piece in pieces]).decode()

    @method
    async def refresh(self) -> TerminalInfo:
        """The terminal as it is now."""
        return self._take(await self._api.json("GET", self._path, params=self._which))

    @method
    async def close(self) -> TerminalInfo:
        """Ends the tool; one that has ended stays as it is."""
        return self._take(await self._api.json("DELETE", self._path, timeout=ENGINE_SECONDS))

    def _take(self, view: dict[str, Any]) -> TerminalInfo:
        self.info = read(TerminalInfo, view)
        return self.info


class Terminals(Face[F]):
    """The terminals of a session; those that it had can be read when it is long gone."""

    def __init__(self, link: Link, path: str, incarnation: int | None = None) -> None:
        super().__init__(link)
        self._path = f"{path}/ptys"
        self._incarnation = incarnation

    @method
    async def open(self, tool: str) -> Terminal[F]:
        """A terminal of that tool, at its first prompt.

        Raises: NotFoundError for a tool that there is not, PermissionDeniedError with the
        `rule` where the session may not open it, ConflictError when it does not come to its
        prompt, BusyError when too much runs.
        """
        answer = await self._api.json(
            "POST", self._path, body={"tool": tool}, timeout=_ANSWER_SECONDS
        )
        return Terminal(self._link, self._path, read(TerminalInfo, answer))

    @method
    async def get(self, id: str) -> Terminal[F]:
        """A terminal that the session has, or had. Raises: NotFoundError."""
        return self._terminal(await self._get(f"{self._path}/{segment(id)}"))

    @method
    async def list(self) -> tuple[Terminal[F], ...]:
        """The terminals that the session has, and had, oldest first."""
        return tuple(self._terminal(each) for each in items(await self._get(self._path)))

    async def _get(self, path: str) -> dict[str, Any]:
        return await self._api.json("GET", path, params={"incarnation": self._incarnation})

    def _terminal(self, view: dict[str, Any]) -> Terminal[F]:
        return Terminal(self._link, self._path, read(TerminalInfo, view), self._incarnation)
