"""Runs of a session: a model works in it by calling tools, and what was said stays."""

from collections.abc import AsyncGenerator
from typing import Any, Unpack

from paddock.client.answers import read
from paddock.client.faces import F, Face, method, stream
from paddock.client.run_events import RunEvent, run_event
from paddock.client.run_sockets import RunSocket, opened
from paddock.client.run_terms import RunTerms, run_members, user_messages
from paddock.client.streams import answered
from paddock.client.turns import longest
from paddock.contract.runs import MessagesQueued, Run, Timeline


class SessionRuns(Face[F]):
    """The part of a session that talks to models."""

    id: str
    _path: str

    @method
    async def send(self, *messages: str, **terms: Unpack[RunTerms]) -> Run:
        """Sends messages to a model that works in the session, and waits for the end of its run.

        While a run is going on, it takes the messages in, and its result is returned. What fails in
        a run is its outcome, not an error.

        Args:
            messages: texts of the user.
            terms: the model and its limits; `RunTerms` describes each.

        Raises: ConflictError while a turn with another program runs; BusyError if too many messages
        are queued. A run that outlives the connection continues; `turns.list` finds it.
        """
        return await self._run("send", user_messages(messages), terms)

    @stream
    def send_stream(
        self, *messages: str, **terms: Unpack[RunTerms]
    ) -> AsyncGenerator[RunEvent, None]:
        """Like `send`, but yields what happens, and the `Run` at its end.

        These are `TurnStarted`, `RunTick`, `RunText`, `RunToolCall` and `RunToolResult`.
        """
        return self._streamed("send", user_messages(messages) | run_members(terms))

    @method
    async def run_socket(self) -> RunSocket[F]:
        """Opens a WebSocket on which one message after another is sent; `close` it at the end."""
        return await opened(self._link, f"{self._path}/run", self.id)

    @method
    async def render(self, **terms: Unpack[RunTerms]) -> Run:
        """Runs a model with what was said before and what is queued; else like `send`."""
        return await self._run("render", {}, terms)

    @stream
    def render_stream(self, **terms: Unpack[RunTerms]) -> AsyncGenerator[RunEvent, None]:
        """Like `render`, but yields what happens, and the `Run` at its end."""
        return self._streamed("render", run_members(terms))

    def _streamed(self, how: str, body: dict[str, Any]) -> AsyncGenerator[RunEvent, None]:
        missing = "the stream of the run ends too soon: `turns` has its result"
        return answered(
            self._api,
            f"{self._path}/{how}",
            body,
            run_event,
            lambda event: isinstance(event, Run),
            missing,
        )

    async def _run(self, how: str, body: dict[str, Any], terms: RunTerms) -> Run:
        body |= run_members(terms)
        wait = longest(terms.get("timeout"))
        return read(
            Run, await self._api.json("POST", f"{self._path}/{how}", body=body, timeout=wait)
        )

    @method
    async def queue(self, *messages: str) -> int:
        """Keeps messages for the next run, and runs nothing; returns how many wait.

        Raises: BusyError if too many wait.
        """
        answer = await self._api.json("POST", f"{self._path}/queue", body=user_messages(messages))
        return read(MessagesQueued, answer).queued

    @method
    async def timeline(self, *, after: int = 0, limit: int = 100) -> Timeline:
        """What was said to models, by them and by tools, in order: entries above `after`."""
        query = {"after": str(after), "limit": str(limit)}
        return read(Timeline, await self._api.json("GET", f"{self._path}/timeline", params=query))
