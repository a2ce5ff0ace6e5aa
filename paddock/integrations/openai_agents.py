"""A provider of OpenAI Agents' sandboxes: `SandboxRunConfig(client=PaddockSandboxClient(), …)`."""

import io
import shlex
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from agents.sandbox.errors import (
    ConfigurationError,
    ErrorCode,
    ExecTimeoutError,
    ExecTransportError,
    WorkspaceArchiveReadError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.runtime_helpers import (
    RESOLVE_WORKSPACE_PATH_HELPER,
    RuntimeHelperScript,
)
from agents.sandbox.session.sandbox_client import BaseSandboxClient, BaseSandboxClientOptions
from agents.sandbox.session.tar_workspace import shell_tar_exclude_args
from agents.sandbox.snapshot import SnapshotBase, SnapshotSpec, resolve_snapshot
from agents.sandbox.types import ExecResult, User
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tar_bytes

from paddock.client.errors import (
    BusyError,
    NotFoundError,
    PaddockError,
    PermissionDeniedError,
    ValidationError,
)
from paddock.client.one_session import session as one_session
from paddock.client.paddock import Paddock
from paddock.client.session import Session
from paddock.integrations.refusals import REFUSED_STATUS, explained

# What a model can do something about; after other errors there is no sandbox to work in.
_FOR_THE_MODEL = (PermissionDeniedError, ValidationError, BusyError)
_BACKEND = "paddock"


class PaddockSandboxClientOptions(BaseSandboxClientOptions):
    """What a sandbox's session may do and use, as `SessionTerms` describes it; None: the default.

    Options are kept with a sandbox's state, so the API key is none of them.
    """

    type: Literal["paddock"] = "paddock"
    permission_level: str | None = None
    image: str | None = None
    template: str | None = None
    from_snapshot: str | None = None
    env: dict[str, str] | None = None
    limits: dict[str, int | float] | None = None
    egress: dict[str, Any] | None = None
    mounts: list[str] | None = None


class PaddockSandboxSessionState(SandboxSessionState):
    """What is needed to find a sandbox again, or to make another like it."""

    type: Literal["paddock"] = "paddock"
    paddock_session_id: str = ""
    options: PaddockSandboxClientOptions


class PaddockSandboxSession(BaseSandboxSession):
    """A session of Paddock as a sandbox.

    Its level must permit any command: OpenAI Agents works by lines for a shell.
    """

    def __init__(
        self, state: PaddockSandboxSessionState, session: Session, owner: AsyncExitStack
    ) -> None:
        """`owner` closes the session."""
        self.state = state
        self._session = session
        self._owner = owner
        self._ended = False

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        """A refusal is an error output, with the rule and what to do, and the exit code 126."""
        argv = [str(word) for word in command]
        try:
            done = await self._session.exec(argv=argv, timeout=timeout)
        except _FOR_THE_MODEL as error:
            said = explained(error).encode()
            return ExecResult(stdout=b"", stderr=said, exit_code=REFUSED_STATUS)
        except PaddockError as error:
            raise ExecTransportError(
                command=argv, message=explained(error), cause=error, retryable=False
            ) from error
        if done.timed_out:
            raise ExecTimeoutError(command=argv, timeout_s=timeout)
        code = -1 if done.exit_code is None else done.exit_code
        return ExecResult(stdout=done.stdout_bytes, stderr=done.stderr_bytes, exit_code=code)

    async def read(self, path: Path, *, user: str | User | None = None) -> io.IOBase:
        """A file's content."""
        return io.BytesIO(await self._content(path, None, user))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._content(path, max_bytes, None)

    async def write(self, path: Path, data: io.IOBase, *, user: str | User | None = None) -> None:
        """Writes a file, and makes the directories above it."""
        _no_users("write", user)
        target = await self._validate_path_access(path, for_write=True)
        try:
            await self._session.files.write(target.as_posix(), data.read(), parents=True)
        except PaddockError as error:
            raise WorkspaceArchiveWriteError(
                path=path, message=explained(error), cause=error
            ) from error

    async def running(self) -> bool:
        """Whether the session lives."""
        if self._ended:
            return False
        try:
            return (await self._session.refresh()).live
        except PaddockError:
            return False

    async def persist_workspace(self) -> io.IOBase:
        """The workspace as a tar archive, which is in the workspace for a moment."""
        root = self._workspace_root_path()
        skipped = shell_tar_exclude_args(self._persist_workspace_skip_relpaths())
        async with self._archive() as name:
            line = shlex.join(["tar", "-cf", name, f"--exclude=./{name}"])
            done = await self.exec(f"{' '.join([line, *skipped])} .")
            if not done.ok():
                said = done.stderr.decode(errors="replace")
                raise WorkspaceArchiveReadError(path=root, context={"stderr": said})
            return io.BytesIO(await self._content(root / name, None, None))

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        """Unpacks a tar archive, whose members and links must stay in the workspace."""
        root, packed = self._workspace_root_path(), data.read()
        try:
            validate_tar_bytes(packed, allow_external_symlink_targets=False)
        except UnsafeTarMemberError as error:
            raise WorkspaceArchiveWriteError(path=root, cause=error) from error
        async with self._archive() as name:
            await self.write(root / name, io.BytesIO(packed))
            done = await self.exec("tar", "-xf", name, shell=False)
            if not done.ok():
                said = done.stderr.decode(errors="replace")
                raise WorkspaceArchiveWriteError(path=root, context={"stderr": said})

    @asynccontextmanager
    async def _archive(self) -> AsyncIterator[str]:
        """The name of a file in the workspace that is removed at the end."""
        name = f".workspace-{self.state.session_id.hex}.tar"
        try:
            yield name
        finally:
            await self.exec("rm", "-f", "--", name, shell=False)

    async def _content(self, path: Path, most: int | None, user: str | User | None) -> bytes:
        _no_users("read", user)
        found = (await self._validate_path_access(path)).as_posix()
        content = bytearray()
        try:
            async with aclosing(self._session.files.read_stream(found)) as pieces:
                async for piece in pieces:
                    content += piece
                    if most is not None and len(content) >= most:
                        break
        except NotFoundError as error:
            raise WorkspaceReadNotFoundError(path=path, cause=error) from error
        except PaddockError as error:
            raise WorkspaceArchiveReadError(
                path=path, context={"reason": explained(error)}, cause=error
            ) from error
        return bytes(content[:most])

    async def _validate_path_access(self, path: Path | str, *, for_write: bool = False) -> Path:
        validated: Path = await self._validate_remote_path_access(path, for_write=for_write)
        return validated

    def _runtime_helpers(self) -> tuple[RuntimeHelperScript, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _prepare_exec_command(
        self, *command: str | Path, shell: bool | list[str], user: str | User | None
    ) -> list[str]:
        _no_users("exec", user)
        prepared: list[str] = super()._prepare_exec_command(*command, shell=shell, user=None)
        return prepared

    async def _shutdown_backend(self) -> None:
        self._ended = True
        await self._owner.aclose()


class PaddockSandboxClient(BaseSandboxClient[PaddockSandboxClientOptions]):
    """Creates sandboxes for `SandboxRunConfig(client=PaddockSandboxClient(), options=…)`."""

    backend_id = _BACKEND

    def __init__(
        self, url: str | None = None, key: str | None = None, *, context: str | None = None
    ) -> None:
        """The control plane and the API key; None: as `Paddock` finds them."""
        super().__init__()
        self._address = (url, key)
        self._context = context

    async def create(
        self,
        *,
        snapshot: SnapshotSpec | SnapshotBase | None = None,
        manifest: Manifest | None = None,
        options: PaddockSandboxClientOptions,
    ) -> SandboxSession:
        """Creates a session. Raises: WorkspaceStartError if there is none."""
        session_id = uuid.uuid4()
        state = PaddockSandboxSessionState(
            session_id=session_id,
            snapshot=resolve_snapshot(snapshot, str(session_id)),
            manifest=self._validate_manifest_for_create(manifest or Manifest()),
            options=options,
        )
        return self._wrap_session(await self._created(state))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        """Closes the session, and removes its files; once."""
        inner = session._inner
        if not isinstance(inner, PaddockSandboxSession):
            raise TypeError("the sandbox is another provider's")
        await inner.shutdown()
        return session

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        """The session with its files, if it lives; or another, which gets those of the snapshot."""
        if not isinstance(state, PaddockSandboxSessionState):
            raise TypeError("the state is another provider's")
        state.assert_path_grants_rebound()
        inner = await self._found(state)
        found = inner is not None
        if inner is None:
            state.workspace_root_ready = False
            inner = await self._created(state)
        inner._set_start_state_preserved(found)
        return self._wrap_session(inner)

    def deserialize_session_state(self, payload: dict[str, object]) -> SandboxSessionState:
        """A state that was kept as JSON."""
        return self._deserialize_session_state_payload(payload, PaddockSandboxSessionState)

    async def _created(self, state: PaddockSandboxSessionState) -> PaddockSandboxSession:
        terms = state.options.model_dump(exclude_none=True)
        del terms["type"]
        variables = {**(state.options.env or {}), **await state.manifest.environment.resolve()}
        terms["env"] = {name: value for name, value in variables.items() if value is not None}
        terms["workspace_path"] = state.manifest.root
        async with AsyncExitStack() as stack:
            url, key = self._address
            one = one_session(url, key, context=self._context, **terms)
            try:
                session = await stack.enter_async_context(one)
            except PaddockError as error:
                said = f"no session: {explained(error)}"
                root = Path(state.manifest.root)
                raise WorkspaceStartError(path=root, message=said, cause=error) from error
            state.paddock_session_id = session.id
            return PaddockSandboxSession(state, session, stack.pop_all())

    async def _found(self, state: PaddockSandboxSessionState) -> PaddockSandboxSession | None:
        """The live session of a state, which is closed with the sandbox, as if it were new."""
        url, key = self._address
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(Paddock(url, key, context=self._context))
            try:
                session = await client.sessions.get(state.paddock_session_id)
            except NotFoundError:
                return None
            if not session.info.live:
                return None
            stack.push_async_callback(partial(session.close, purge=True))
            return PaddockSandboxSession(state, session, stack.pop_all())


def _no_users(operation: Literal["exec", "read", "write"], user: str | User | None) -> None:
    """Raises: ConfigurationError for a user."""
    if user is not None:
        raise ConfigurationError(
            message="commands and files of a session are its own user's; leave the user out",
            error_code=ErrorCode.SANDBOX_CONFIG_INVALID,
            op=operation,
            context={"backend": _BACKEND},
        )
