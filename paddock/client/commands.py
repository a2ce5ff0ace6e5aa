"""Commands of a session: run, followed to their end, fed and signalled."""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from paddock.client.errors import (
    ApprovalPendingError,
    ConnectionLostError,
    NotPaddockError,
    PaddockError,
    api_error,
)
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.parsing import read, read_items
from paddock.client.requests import exec_body, input_members, segment
from paddock.client.results import ExecEvent, StreamedOutput
from paddock.client.retry import PASSING
from paddock.client.sse import ServerEvent
from paddock.client.streams import never, resumed
from paddock.client.transport import Transport
from paddock.contract.commands import (
    Command,
    CommandOutput,
    CommandResult,
    ExitData,
    PendingCommand,
    StartData,
)

log = logging.getLogger(__name__)

# The longest wait if neither the caller nor the level limits the command's time.
_LONGEST_SECONDS = 3600
# The control plane's own waiting time for a command's end, and a margin.
_GRACE_SECONDS = 60.0
# A command that outlives its connection needs a time-out; every packaged level permits this one.
STREAM_TIMEOUT_SECONDS = 120
_KILL_SECONDS = 5.0


async def run_to_end(api: Transport, path: str, body: dict[str, Any]) -> CommandResult:
    """Runs a foreground command and waits for its result."""
    wait = body.get("timeout", _LONGEST_SECONDS) + body.get("wait", 0) + _GRACE_SECONDS
    answer = await api.json("POST", f"{path}/exec", body=body, timeout=wait)
    if "approval" in answer:
        raise ApprovalPendingError(read(PendingCommand, answer).approval.id)
    return read(CommandResult, answer)


async def run_streamed(
    api: Transport, path: str, body: dict[str, Any], *, resume: bool
) -> AsyncGenerator[ExecEvent, None]:
    """Runs a command and yields its events; with `resume`, over any number of connections."""
    if resume:
        body = {"timeout": STREAM_TIMEOUT_SECONDS, **body, "background": True}
    command_id, position, ended = None, 0, False
    try:
        try:
            async with api.events("POST", f"{path}/exec", body=body) as events:
                async for event in events:
                    told = _told(event, command_id)
                    command_id = told.command_id if isinstance(told, StartData) else command_id
                    position = position if event.id is None else event.id
                    ended = isinstance(told, ExitData)
                    yield told
        except PASSING:
            # Until its start is known, there is nothing to resume.
            if command_id is None or not resume:
                raise
        if not ended:
            if command_id is None or not resume:
                raise ConnectionLostError("the stream of the command ends too soon")
            async with aclosing(followed(api, path, command_id, position)) as rest:
                async for told in rest:
                    ended = isinstance(told, ExitData)
                    if not isinstance(told, StartData):
                        yield told
    finally:
        if resume and command_id is not None and not ended:
            await _kill(api, path, command_id)


async def followed(
    api: Transport, path: str, command_id: str, after: int
) -> AsyncGenerator[ExecEvent, None]:
    """A command's events from an offset of its output on, to its `ExitData`."""
    url = f"{path}/processes/{segment(command_id)}"
    async with aclosing(resumed(api, url, after, never)) as events:
        begun = False
        async for event in events:
            told = _told(event, command_id)
            if isinstance(told, StartData) and begun:
                continue
            begun = True
            yield told
            if isinstance(told, ExitData):
                return


async def _kill(api: Transport, path: str, command_id: str) -> None:
    """Ends a command whose caller has left; if this fails, its time-out ends it."""
    url = f"{path}/processes/{segment(command_id)}/signal"
    try:
        await api.json("POST", url, body={"signal": "KILL"}, timeout=_KILL_SECONDS)
    except (PaddockError, RuntimeError) as error:
        log.info("command %s was not ended: %s", command_id, error)


def _told(event: ServerEvent, command_id: str | None) -> ExecEvent:
    """The command event. Raises: PaddockAPIError for an `error` event."""
    if event.name == "start":
        return read(StartData, event.data)
    if event.name in ("stdout", "stderr"):
        return read(StreamedOutput, {"stream": event.name, **event.data})
    if event.name == "exit":
        return read(ExitData, {"command_id": command_id, **event.data})
    if event.name == "error":
        status = event.data.get("status")
        raise api_error(status if isinstance(status, int) else 500, event.data)
    raise NotPaddockError(f"the server sends events that are not Paddock's: {event.name[:64]}")


class Processes(Face[F]):
    """A session's background commands, and the recent ones.

    All methods raise `PaddockAPIError` in the class of its code (NotFoundError for a command that
    is no longer known), and the other errors of `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._session = path
        self._path = f"{path}/processes"

    @method
    async def start(
        self,
        command: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        stdin_open: bool = False,
        timeout: int | None = None,
    ) -> Command:
        """Starts a command in the background; returns when it has started.

        It outlives its client. With `stdin_open`, `stdin` can send it input. `timeout` is in
        seconds; with None, it may run as long as its session.
        """
        body = exec_body(
            command,
            argv,
            stdin,
            env=env,
            secrets=secrets,
            cwd=cwd,
            stdin_open=stdin_open or None,
            timeout=timeout,
            background=True,
        )
        return read(Command, await self._api.json("POST", f"{self._session}/exec", body=body))

    @method
    async def get(self, command_id: str, *, after: int = 0) -> CommandOutput:
        """A command with its current output from byte `after` on."""
        view = await self._api.json(
            "GET", f"{self._path}/{segment(command_id)}", params={"after": after}
        )
        return read(CommandOutput, view)

    @stream
    async def follow(self, command_id: str, *, after: int = 0) -> AsyncGenerator[ExecEvent, None]:
        """A command's events: `StartData`, `StreamedOutput` from byte `after` on, `ExitData`.

        Survives broken connections. The command continues if its reader leaves.
        """
        async with aclosing(followed(self._api, self._session, command_id, after)) as events:
            async for event in events:
                yield event

    @method
    async def wait(self, command_id: str) -> ExitData:
        """The result of a command, once it has ended; only the command's own time-out applies."""
        async with aclosing(followed(self._api, self._session, command_id, 0)) as events:
            async for event in events:
                if isinstance(event, ExitData):
                    return event
        raise NotPaddockError("the stream of the command has no end")

    @method
    async def stdin(self, command_id: str, data: str | bytes = "", *, close: bool = False) -> None:
        """Sends input to a command that was started with `stdin_open`; `close` ends its input.

        At most 1 MiB at once. Waits until the command has read earlier input; raises BusyError if
        it does not read, ConflictError if its input is closed.
        """
        body = {**input_members("data", data), "close": close}
        await self._api.json("POST", f"{self._path}/{segment(command_id)}/stdin", body=body)

    @method
    async def signal(self, command_id: str, signal: str | int = "TERM") -> None:
        """Sends a signal, by name or number, to the command's process group."""
        body = {"signal": signal}
        await self._api.json("POST", f"{self._path}/{segment(command_id)}/signal", body=body)

    @method
    async def list(self) -> tuple[Command, ...]:
        """All running commands and the latest ended ones, oldest first."""
        return read_items(Command, await self._api.json("GET", self._path))
