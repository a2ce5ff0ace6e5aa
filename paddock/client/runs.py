"""Runs of a session: a model works in it by calling tools, and what was said stays."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from typing import Any

from paddock.client.answers import read
from paddock.client.errors import ConnectionLostError, api_error
from paddock.client.faces import F, Face, method, stream
from paddock.client.requests import given
from paddock.client.run_events import RunEvent, run_event
from paddock.client.run_sockets import RunSocket, opened
from paddock.client.turns import longest
from paddock.contract.runs import RUN_EVENTS, MessagesQueued, Run, Timeline


class SessionRuns(Face[F]):
    """The part of a session that talks to models."""

    id: str
    _path: str

    @method
    async def send(
        self,
        *messages: str,
        model: str | None = None,
        system: str | None = None,
        max_ticks: int | None = None,
        max_timeline_entries: int | None = None,
        permission_level: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        timeout: int | None = None,
    ) -> Run:
        """Sends messages to a model that works in the session, and waits for the end of its run.

        While a run is going on, it takes the messages in, and its result is returned. What fails in
        a run is its outcome, not an error.

        Args:
            messages: texts of the user.
            model: one of `paddock.models.list()`; None: the first one.
            system: instructions instead of the usual ones.
            max_ticks: the most calls of the model; None: 10.
            max_timeline_entries: the most that are kept of the timeline; None: 500.
            permission_level: changes the session's level first; needs a key.
            tools: tools of yours for this run, each with `name`, `description`, `input_schema`,
                `url`, `secret` and maybe `timeout`; needs a key.
            timeout: the seconds after which the run is stopped; None: 3,600.

        Raises: ConflictError while a turn with another program runs; BusyError if too many messages
        are queued. A run that outlives the connection continues; `turns.list` finds it.
        """
        body = _body(
            *(messages, model, system, max_ticks, max_timeline_entries, permission_level),
            *(tools, timeout),
        )
        url = f"{self._path}/send"
        wait = longest(timeout)
        return read(Run, await self._api.json("POST", url, body=body, timeout=wait))

    @stream
    async def send_stream(
        self,
        *messages: str,
        model: str | None = None,
        system: str | None = None,
        max_ticks: int | None = None,
        max_timeline_entries: int | None = None,
        permission_level: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        timeout: int | None = None,
    ) -> AsyncGenerator[RunEvent, None]:
        """Like `send`, but yields what happens, and the `Run` at its end.

        These are `TurnStarted`, `RunTick`, `RunText`, `RunToolCall` and `RunToolResult`.
        """
        body = _body(
            *(messages, model, system, max_ticks, max_timeline_entries, permission_level),
            *(tools, timeout),
        )
        ended = False
        async with self._api.events("POST", f"{self._path}/send", body=body) as events:
            async for event in events:
                if event.name == "error":
                    raise api_error(event.data.get("status") or 500, event.data)
                kind = RUN_EVENTS.get(event.name)
                if kind is not None:
                    ended = kind is Run
                    yield run_event(kind, event.data)
        if not ended:
            raise ConnectionLostError("the stream of the run ends too soon: `turns` has its result")

    @method
    async def run_socket(self) -> RunSocket[F]:
        """Opens a WebSocket on which one message after another is sent; `close` it at the end."""
        return await opened(self._link, f"{self._path}/run", self.id)

    @method
    async def render(
        self,
        *,
        model: str | None = None,
        system: str | None = None,
        max_ticks: int | None = None,
        max_timeline_entries: int | None = None,
        permission_level: str | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        timeout: int | None = None,
    ) -> Run:
        """Runs a model with what was said before and what is queued; else like `send`."""
        body = given(
            model=model,
            system=system,
            max_ticks=max_ticks,
            max_timeline_entries=max_timeline_entries,
            permission_level=permission_level,
            tools=tools,
            timeout=timeout,
        )
        url = f"{self._path}/render"
        wait = longest(timeout)
        return read(Run, await self._api.json("POST", url, body=body, timeout=wait))

    @method
    async def queue(self, *messages: str) -> int:
        """Keeps messages for the next run, and runs nothing; returns how many wait.

        Raises: BusyError if too many wait.
        """
        answer = await self._api.json("POST", f"{self._path}/queue", body=_messages(messages))
        return read(MessagesQueued, answer).queued

    @method
    async def timeline(self, *, after: int = 0, limit: int = 100) -> Timeline:
        """What was said to models, by them and by tools, in order: entries above `after`."""
        query = {"after": str(after), "limit": str(limit)}
        return read(Timeline, await self._api.json("GET", f"{self._path}/timeline", params=query))


def _messages(messages: Iterable[str]) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text} for text in messages]}


def _body(
    messages: Iterable[str],
    model: str | None,
    system: str | None,
    max_ticks: int | None,
    max_timeline_entries: int | None,
    permission_level: str | None,
    tools: Sequence[Mapping[str, Any]] | None,
    timeout: int | None,
) -> dict[str, Any]:
    return _messages(messages) | given(
        model=model,
        system=system,
        max_ticks=max_ticks,
        max_timeline_entries=max_timeline_entries,
        permission_level=permission_level,
        tools=tools,
        timeout=timeout,
    )
