"""Commands of a session that have an id: begun, followed, fed and signalled."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Literal

from paddock.client.answers import read, read_items
from paddock.client.commands import followed
from paddock.client.errors import NotPaddockError, OutputLostError
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.requests import exec_body, input_members, segment
from paddock.client.results import ExecEvent, StreamedOutput
from paddock.contract.commands import Command, CommandOutput, ExitData


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
        shell: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        stdin_open: bool = False,
        merge: bool = False,
        output_file: str | None = None,
        timeout: float | None = None,
    ) -> Command:
        """Starts a command in the background; returns when it has started.

        It outlives its client. With `stdin_open`, `stdin` can send it input. `timeout` is in
        seconds; with None, it may run as long as its session. Other arguments are as for
        `Session.exec`.
        """
        body = exec_body(
            command,
            argv,
            shell,
            stdin,
            env=env,
            secrets=secrets,
            cwd=cwd,
            stdin_open=stdin_open,
            merge=merge,
            output_file=output_file,
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
    def follow(self, command_id: str, *, after: int = 0) -> AsyncGenerator[ExecEvent, None]:
        """A command's events: `StartData`, `StreamedOutput` from byte `after` on, `ExitData`.

        Survives broken connections. The command continues if its reader leaves.
        """
        return followed(self._api, self._session, command_id, after)

    @stream
    def output(
        self, command_id: str, *, stream: Literal["stdout", "stderr"] | None = None, after: int = 0
    ) -> AsyncGenerator[bytes, None]:
        """Exactly what a command prints and has printed, to its end: of one stream, or of both.

        Survives broken connections. Raises: OutputLostError before bytes that are not kept; `after`
        begins after them.
        """
        return self._written(command_id, stream, after)

    async def _written(
        self, command_id: str, stream: str | None, after: int
    ) -> AsyncGenerator[bytes, None]:
        async with aclosing(followed(self._api, self._session, command_id, after)) as events:
            async for event in events:
                if not isinstance(event, StreamedOutput):
                    continue
                if event.cut:
                    raise OutputLostError(event.offset, event.cut)
                if stream in (None, event.stream):
                    yield event.data

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
