"""Commands of a session, run to their end or followed to it."""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from paddock.client.answers import read
from paddock.client.errors import (
    ApprovalPendingError,
    ConnectionLostError,
    NotPaddockError,
    PaddockError,
    event_error,
)
from paddock.client.faces import F, Face, method, stream
from paddock.client.requests import exec_body, given, segment
from paddock.client.results import ExecEvent, StreamedOutput
from paddock.client.retry import PASSING
from paddock.client.sse import ServerEvent
from paddock.client.streams import never, resumed
from paddock.client.transport import Transport
from paddock.contract.commands import (
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
                    position = event.id if isinstance(event.id, int) else position
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
        raise event_error(event.data)
    raise NotPaddockError(f"the server sends events that are not Paddock's: {event.name[:64]}")


class SessionCommands(Face[F]):
    """The part of a session that runs commands in the foreground."""

    _path: str

    @method
    async def exec(
        self,
        command: str | None = None,
        *,
        argv: Sequence[str] | None = None,
        shell: str | None = None,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        merge: bool = False,
        output_file: str | None = None,
        timeout: float | None = None,
        permission_level: str | None = None,
    ) -> CommandResult:
        """Runs a command and waits for its end; a command that fails is a result, not an error.

        Args:
            command: a line, split into words as a shell would; there is no shell.
            argv: the words themselves.
            shell: a line for bash, with pipes and redirections; only at levels that permit any
                command. Exactly one of the three is required.
            cwd: directory, relative to the workspace or below its path (`workspace_path`).
            env: additional variables.
            secrets: additional variables, of 8 bytes or more, that are removed from all records; if
                the level lists variables, other names must begin with `SECRET_`.
            stdin: standard input, at most 1 MiB.
            merge: standard error goes where standard output goes, in order.
            output_file: a file of the workspace that gets what is printed instead of the result; it
                is emptied first.
            timeout: seconds until it is ended, also fractions; None: the level's default. Required
                for more than an hour.
            permission_level: changes the session's level first.

        Raises: PermissionDeniedError with the `rule`, ValidationError, BusyError if too many
        commands run, SandboxUnavailableError, AuditUnavailableError (nothing was run).

        A broken connection ends the command.
        """
        body = exec_body(
            command,
            argv,
            shell,
            stdin,
            env=env,
            secrets=secrets,
            cwd=cwd,
            merge=merge,
            output_file=output_file,
            timeout=timeout,
            permission_level=permission_level,
        )
        return await run_to_end(self._api, self._path, body)

    @method
    async def shell(
        self,
        line: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        stdin: str | bytes | None = None,
        merge: bool = False,
        output_file: str | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        """Has bash run a line, such as `cd a && make 2>&1 | tail`, and waits for its end.

        Only at levels that permit any command: others run no shell. Each line begins anew, in `cwd`
        and with the session's variables. Arguments and errors are as for `exec`.
        """
        body = exec_body(
            None,
            None,
            line,
            stdin,
            env=env,
            secrets=secrets,
            cwd=cwd,
            merge=merge,
            output_file=output_file,
            timeout=timeout,
        )
        return await run_to_end(self._api, self._path, body)

    @method
    async def run_tool(
        self,
        tool: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: float | None = None,
        wait: float = 0,
    ) -> CommandResult:
        """Runs one of the operator's oneshot tools with its arguments, and waits for its end.

        Args:
            timeout: seconds until it is ended; None: the tool's default.
            wait: seconds to wait for a person, if the tool needs approval.

        Raises: the errors of `exec`; NotFoundError if there is no such tool; ApprovalPendingError
        while it is undecided, PermissionDeniedError if a person denied it.
        """
        body = given(tool=tool, arguments=arguments or {}, wait=wait, timeout=timeout)
        return await run_to_end(self._api, self._path, body)

    @stream
    def exec_stream(
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
        permission_level: str | None = None,
        resume: bool = True,
    ) -> AsyncGenerator[ExecEvent, None]:
        """Runs a command and yields `StartData`, live `StreamedOutput`, and `ExitData`.

        With `resume`, the command survives a broken connection, and the stream continues where it
        was; leaving the stream early kills the command, and so does `timeout` (seconds, None: 120)
        if this client vanishes. Without `resume`, a broken connection ends the command and raises
        ConnectionLostError; `timeout` None is the level's default. To leave early at a known point,
        use `async with contextlib.aclosing(s.exec_stream(…))`.

        With `stdin_open`, `processes.stdin` sends input, with the id in `StartData`. Other
        arguments and errors are as for `exec`.
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
            permission_level=permission_level,
        )
        return run_streamed(self._api, self._path, body, resume=resume)
