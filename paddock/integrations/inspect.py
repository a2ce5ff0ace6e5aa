"""Sandboxes of Inspect AI: `sandbox="paddock"`. Inspect finds this module by its entry point."""

import asyncio
import errno
import tomllib
from collections.abc import Mapping
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Never, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxConnection,
    SandboxEnvironment,
    SandboxEnvironmentConfigType,
    SandboxEnvironmentLimits,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from inspect_ai.util import SandboxUnavailableError as NoSandboxError
from pydantic import BaseModel

from paddock.client.errors import (
    ConflictError,
    LimitError,
    NotFoundError,
    NotPaddockError,
    PaddockAPIError,
    PaddockError,
    PermissionDeniedError,
    SandboxUnavailableError,
    SessionTerminatedError,
    UnreachableError,
)
from paddock.client.one_session import session
from paddock.client.paddock import Paddock
from paddock.client.session import Session
from paddock.contract.commands import Exit, ExitData, StartData
from paddock.integrations.refusals import REFUSED_STATUS, explained, timed_out

# What a request may have as standard input; more is sent to a running command.
_STDIN_BYTES = 1024 * 1024
# By this label, sessions of evaluations are found that were killed.
_LABEL = ("framework", "inspect")
_LOST = (SandboxUnavailableError, SessionTerminatedError, UnreachableError)


class _Ended(NamedTuple):
    """A command's end, and what it has printed."""

    exit: Exit
    stdout: str
    stderr: str


class PaddockConfig(BaseModel, frozen=True, extra="forbid"):
    """What sessions of samples may do and use; the names of a TOML file, too.

    Inspect writes configurations into its logs, so the API key is none of them: it is found as
    `Paddock` finds it. The members are those of `SessionTerms`; None means the default.
    """

    permission_level: str | None = None
    image: str | None = None
    template: str | None = None
    from_snapshot: str | None = None
    env: dict[str, str] | None = None
    limits: dict[str, int | float] | None = None
    egress: dict[str, Any] | None = None
    mounts: list[str] | None = None
    workspace_path: str | None = None
    url: str | None = None
    context: str | None = None


@sandboxenv(name="paddock")
class PaddockSandbox(SandboxEnvironment):
    """A session, from the beginning of a sample to its end.

    Every method raises Inspect's SandboxUnavailableError if the session has ended or nobody
    answers, PermissionError for a refusal, with its rule and what to do instead, and PaddockError
    for other failures.
    """

    def __init__(self, session: Session, owner: AsyncExitStack) -> None:
        """`owner` closes the session."""
        super().__init__()
        self._session = session
        self._owner = owner
        self._user: str | None = None

    @classmethod
    async def sample_init(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        metadata: dict[str, str],
    ) -> dict[str, SandboxEnvironment]:
        """Creates the session of a sample. Raises: OSError, ValueError for a bad file."""
        terms = _config(config).model_dump(exclude_none=True)
        url, context = terms.pop("url", None), terms.pop("context", None)
        labels = {_LABEL[0]: _LABEL[1], "inspect_task": task_name[:1024]}
        async with AsyncExitStack() as stack:
            one = session(url, context=context, labels=labels, **terms)
            sample = await stack.enter_async_context(one)
            return {"default": cls(sample, stack.pop_all())}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: SandboxEnvironmentConfigType | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        """Closes the session, and removes its files."""
        for environment in environments.values():
            await environment.as_type(cls)._owner.aclose()

    @classmethod
    async def cli_cleanup(cls, id: str | None) -> None:
        """Closes the session with that id, or all of evaluations: also of those that still run."""
        async with Paddock() as paddock:
            found = [each.id for each in await paddock.sessions.list(label=_LABEL)]
            for name in found if id is None else [id]:
                await paddock.sessions.close(name, purge=True)

    @classmethod
    def config_files(cls) -> list[str]:
        """The file that is used if it is beside the task."""
        return ["paddock.toml"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """A configuration that was read from a log."""
        return PaddockConfig(**config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Runs a command; one that was ended by its time-out is never run again.

        Raises: TimeoutError, OutputLimitExceededError, SandboxUserUnsupportedError.
        """
        data = input.encode() if isinstance(input, str) else input
        terms = {"argv": cmd, "cwd": cwd, "env": env, "timeout": timeout}
        try:
            if user is not None and user != await self._own_user():
                said = f"commands can't run as {user!r}: they run as the session's own user"
                raise SandboxUserUnsupportedError(said)
            done = await _run(self._session, data, terms)
        except PaddockError as error:
            _raise(error, cmd[0] if cmd else "")
        return _result(done, timeout)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Writes a file, and makes the directories above it. Raises: IsADirectoryError."""
        try:
            await self._session.files.write(file, contents, parents=True)
        except PaddockError as error:
            await self._raise_of_file(error, file)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """A file's content.

        Raises: FileNotFoundError, IsADirectoryError, UnicodeDecodeError, OutputLimitExceededError.
        """
        limit = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        try:
            content = await self._session.files.read(file, max_bytes=limit)
        except LimitError as error:
            shown = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR
            raise OutputLimitExceededError(shown, truncated_output=None) from error
        except PaddockError as error:
            await self._raise_of_file(error, file)
        return content.decode() if text else content

    async def connection(self, *, user: str | None = None) -> SandboxConnection:
        """How a person gets a shell in the session."""
        return SandboxConnection(type="paddock", command=f"paddock shell {self._session.id}")

    def default_polling_interval(self) -> float:
        """Seconds between the requests of Inspect's services; each is a recorded command."""
        return 2

    async def _own_user(self) -> str:
        """The name of the user that commands run as, which the level decides."""
        if self._user is None:
            self._user = (await self._session.exec(argv=["whoami"])).stdout.strip()
        return self._user

    async def _raise_of_file(self, error: PaddockError, file: str) -> Never:
        """Raises what Inspect expects; a conflict may be a directory's."""
        if isinstance(error, NotFoundError):
            raise FileNotFoundError(errno.ENOENT, error.detail, file) from error
        if isinstance(error, ConflictError) and await self._is_directory(file):
            raise IsADirectoryError(errno.EISDIR, error.detail, file) from error
        _raise(error, file)

    async def _is_directory(self, file: str) -> bool:
        try:
            return (await self._session.files.stat(file)).type == "directory"
        except PaddockAPIError:
            return False


def _config(config: SandboxEnvironmentConfigType | None) -> PaddockConfig:
    """Raises: OSError, ValueError for a file that is not a configuration; TypeError."""
    if config is None:
        return PaddockConfig()
    if isinstance(config, PaddockConfig):
        return config
    if isinstance(config, str):
        return PaddockConfig(**tomllib.loads(Path(config).read_text(encoding="utf-8")))
    raise TypeError(f"the sandbox's configuration is a {type(config).__name__}: use PaddockConfig")


async def _run(session: Session, data: bytes | None, terms: Mapping[str, Any]) -> _Ended:
    """Runs a command; one with much input gets it in pieces, as it reads them."""
    if data is None or len(data) <= _STDIN_BYTES:
        done = await session.exec(stdin=data, **terms)
        return _Ended(done, done.stdout, done.stderr)
    written: dict[str, list[bytes]] = {"stdout": [], "stderr": []}
    running = session.exec_stream(stdin_open=True, resume=False, **terms)
    async with AsyncExitStack() as stack:
        async for event in await stack.enter_async_context(aclosing(running)):
            if isinstance(event, StartData):
                feeding = asyncio.create_task(_feed(session, event.command_id, data))
                stack.push_async_callback(_ended, feeding)
            elif isinstance(event, ExitData):
                return _Ended(
                    event, *(b"".join(each).decode(errors="replace") for each in written.values())
                )
            else:
                written[event.stream].append(event.data)
    raise NotPaddockError("the stream of the command has no end")


async def _feed(session: Session, command_id: str, data: bytes) -> None:
    """Sends all input, or as much as the command takes before it ends."""
    pieces = [data[at : at + _STDIN_BYTES] for at in range(0, len(data), _STDIN_BYTES)]
    with suppress(ConflictError, NotFoundError):
        for piece in pieces:
            await session.processes.stdin(command_id, piece)
        await session.processes.stdin(command_id, close=True)


async def _ended(task: asyncio.Task[None]) -> None:
    """Ends a task whose command has ended, and raises what made it fail."""
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def _result(done: _Ended, timeout: float | None) -> ExecResult[str]:
    code, stdout, stderr = done.exit.exit_code, done.stdout, done.stderr
    if done.exit.timed_out:
        raise TimeoutError(timed_out(timeout))
    if code == REFUSED_STATUS and "permission denied" in stderr.casefold():
        raise PermissionError(errno.EACCES, stderr.strip())
    limit = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
    if done.exit.truncated or max(len(stdout), len(stderr)) > limit:
        kept = min(limit, done.exit.output_bytes - done.exit.cut_bytes)
        raise OutputLimitExceededError(f"{kept} bytes", truncated_output=stdout + stderr)
    return ExecResult(code == 0, -1 if code is None else code, stdout, stderr)


def _raise(error: PaddockError, subject: str) -> Never:
    if isinstance(error, PermissionDeniedError):
        raise PermissionError(errno.EACCES, explained(error), subject) from error
    if isinstance(error, _LOST):
        raise NoSandboxError(explained(error)) from error
    raise error
