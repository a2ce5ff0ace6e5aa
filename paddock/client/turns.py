"""Turns of a session: run programs of governed operations, and read earlier turns."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from typing import Any, TypeAlias

from paddock.client.answers import read
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.requests import given
from paddock.client.streams import answered
from paddock.contract.turns import (
    TURN_EVENTS,
    USUAL_TIMEOUT,
    Turn,
    TurnOperation,
    Turns,
    TurnStarted,
)

# How long a turn's last operation may take to stop, and its end to be recorded.
_GRACE_SECONDS = 60

TurnEvent: TypeAlias = TurnStarted | TurnOperation | Turn


class SessionTurns(Face[F]):
    """Runs turns, one at a time.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/turns"

    @method
    async def run(
        self,
        code: str | None = None,
        *,
        operations: Iterable[tuple[str, Mapping[str, Any]]] | None = None,
        timeout: int | None = None,
    ) -> Turn:
        """Runs a turn and waits for its end; what fails in it is its outcome, not an error.

        Args:
            code: a program in Lisp.
            operations: names of operations with their arguments; exactly one of the two is
                required.
            timeout: the seconds after which the turn is stopped; None: 3,600.

        Raises: ConflictError while another turn runs; ValidationError for an unknown operation or
        argument. A turn that outlives the connection continues; `list` finds it.
        """
        answer = await self._api.json(
            "POST", self._path, body=_body(code, operations, timeout), timeout=longest(timeout)
        )
        return read(Turn, answer)

    @stream
    def stream(
        self,
        code: str | None = None,
        *,
        operations: Iterable[tuple[str, Mapping[str, Any]]] | None = None,
        timeout: int | None = None,
    ) -> AsyncGenerator[TurnEvent, None]:
        """Runs a turn and yields `TurnStarted`, each `TurnOperation`, and the `Turn` at its end."""
        body = _body(code, operations, timeout)
        missing = "the stream of the turn ends too soon: `get` has its result"
        return answered(self._api, self._path, body, _event, _is_last, missing)

    @method
    async def get(self, number: int) -> Turn:
        """A turn with its operations, running or ended. Raises: NotFoundError."""
        return read(Turn, await self._api.json("GET", f"{self._path}/{number}"))

    @method
    async def list(self, *, after: int = 0, limit: int = 100) -> Turns:
        """Turns with numbers above `after`, in order, without their operations."""
        query = {"after": str(after), "limit": str(limit)}
        return read(Turns, await self._api.json("GET", self._path, params=query))


def _event(name: str, data: Any) -> TurnEvent | None:
    """The event of that name; None for one that this client does not know."""
    found = read(TURN_EVENTS[name], data) if name in TURN_EVENTS else None
    assert isinstance(found, TurnEvent | None)  # noqa: S101 - those of TURN_EVENTS
    return found


def _is_last(event: TurnEvent) -> bool:
    return isinstance(event, Turn)


def longest(timeout: int | None) -> float:
    """How long an answer may take, for the time limit of a turn."""
    return (USUAL_TIMEOUT if timeout is None else timeout) + _GRACE_SECONDS


def _body(
    code: str | None,
    operations: Iterable[tuple[str, Mapping[str, Any]]] | None,
    timeout: int | None,
) -> dict[str, Any]:
    calls = None
    if operations is not None:
        calls = [{"operation": name, "args": dict(args)} for name, args in operations]
    return given(code=code, operations=calls, timeout=timeout)
