"""One session."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Unpack

from paddock.client.answers import read, read_items
from paddock.client.audit import Audit
from paddock.client.break_glass import BreakGlass
from paddock.client.code import CodeContexts, SessionCode
from paddock.client.commands import SessionCommands
from paddock.client.consume import Consume
from paddock.client.egress import Egress
from paddock.client.errors import NotFoundError, PaddockError, UnauthorizedError
from paddock.client.faces import Async, F, Link, Sync, method, stream
from paddock.client.files import Files
from paddock.client.git import Git
from paddock.client.mcp import Mcp
from paddock.client.memory import SessionMemory
from paddock.client.named_snapshots import COPY_SECONDS, SessionSnapshots
from paddock.client.ports import Ports
from paddock.client.processes import Processes
from paddock.client.proposals import SessionProposals
from paddock.client.requests import ENGINE_SECONDS, EXPLAIN, check_terms, given, session_path
from paddock.client.runs import SessionRuns
from paddock.client.secrets import Secrets
from paddock.client.settings import Settings
from paddock.client.shells import Shells
from paddock.client.snapshots import BytesProgress, save
from paddock.client.spawns import ChildTerms, SessionSpawning
from paddock.client.streams import resumed
from paddock.client.terminals import Terminals
from paddock.client.turns import SessionTurns
from paddock.contract.audit import AuditEvent
from paddock.contract.budget import Budget
from paddock.contract.explanations import Explanation
from paddock.contract.inspection import InspectedSession
from paddock.contract.sessions import Handle, SessionSettings
from paddock.contract.sessions import Session as SessionInfo
from paddock.contract.tools import Tool


class Session(SessionCommands[F], SessionCode[F], SessionRuns[F], SessionSpawning[F]):
    """A session: commands, code, files, terminals, runs of models, audit, lifecycle.

    As a context manager it closes the session at the end; the workspace stays, unless
    `close(purge=True)` was called before. All methods raise `PaddockAPIError` in the class of its
    code (SessionTerminatedError for new work in an ended session, BudgetExceededError if its budget
    ended it, also for what was running then), and the other errors of `paddock.client.errors`.

    Attributes:
        id: the session's id.
        handle: its own credential, if this client received it; it is sent only at creation.
        info: the session as of the last answer; `refresh` requests it again.
    """

    def __init__(self, link: Link, info: SessionInfo, handle: str | None = None) -> None:
        super().__init__(link)
        self.id = info.id
        self.handle = handle
        self.info = info
        self._path = session_path(info.id)
        self._closed = False
        self.files: Files[F] = Files(link, self._path)
        self.git: Git[F] = Git(link, self._path)
        self.processes: Processes[F] = Processes(link, self._path)
        self.code_contexts: CodeContexts[F] = CodeContexts(link, self._path)
        self.egress: Egress[F] = Egress(link, self._path)
        self.break_glass: BreakGlass[F] = BreakGlass(link, self._path)
        self.consume: Consume[F] = Consume(link, self._path)
        self.settings: Settings[F] = Settings(link, self._path)
        self.audit: Audit[F] = Audit(link, self._path)
        self.terminals: Terminals[F] = Terminals(link, self._path)
        self.shells: Shells[F] = Shells(link, self._path)
        self.proposals: SessionProposals[F] = SessionProposals(link, self._path)
        self.ports: Ports[F] = Ports(link, self._path)
        self.turns: SessionTurns[F] = SessionTurns(link, self._path)
        self.mcp: Mcp[F] = Mcp(link, self._path)
        self.secrets: Secrets[F] = Secrets(link, self._path)
        self.snapshots: SessionSnapshots[F] = SessionSnapshots(link, self._path)
        self.memory: SessionMemory[F] = SessionMemory(link, self._path)

    def __repr__(self) -> str:
        return f"<Session {self.id} {self.info.permission_level} {self.info.status}>"

    @method
    async def snapshot(self, local: str | Path, *, progress: BytesProgress | None = None) -> int:
        """Writes the session to a local file, for `Paddock.restore`; returns its size in bytes.

        It has the turns, the budget, the policy, the workspace and what is staged, but no secrets.
        Nothing may run in the session. `progress` is called with the bytes so far. Raises:
        BusyError, ConflictError, TooLargeError, OSError.
        """
        return await save(self._api, self._path, Path(local), progress)

    @stream
    async def events(self, *, after: int = 0) -> AsyncGenerator[AuditEvent, None]:
        """The session's audit events after that `seq`, until the session ends.

        Survives broken connections; each event is yielded once.
        """
        terminated = False

        async def over() -> bool:
            return terminated or not await self._lives()

        async with aclosing(resumed(self._api, f"{self._path}/events", after, over)) as events:
            try:
                async for event in events:
                    told = read(AuditEvent, event.data)
                    terminated = terminated or told.operation == "session.terminated"
                    yield told
            except UnauthorizedError:
                # A handle is invalid once its session has ended.
                if not terminated:
                    raise

    @method
    async def explain(
        self,
        *,
        command: str | None = None,
        argv: Sequence[str] | None = None,
        shell: str | None = None,
        path: str | None = None,
        cwd: str | None = None,
    ) -> Explanation:
        """Explains how the session's level decides a command or a path; nothing is run.

        Exactly one of `command`, `argv`, `shell` and `path` is required.
        """
        body = given(command=command, argv=argv, shell=shell, path=path, cwd=cwd, session=self.id)
        return read(Explanation, await self._api.json("POST", EXPLAIN, body=body))

    @method
    async def tools(self) -> tuple[Tool, ...]:
        """All commands of all tools, and whether this session could be allowed to use each."""
        return read_items(Tool, await self._api.json("GET", f"{self._path}/tools"))

    @method
    async def spawn(self, **terms: Unpack[ChildTerms]) -> "Session[F]":
        """Spawns a child with at most what this session has. It needs a key.

        The child lives until it is closed or this session ends.

        Args:
            terms: what the child may do and use; `ChildTerms` describes each.

        Raises: ConflictError at the maximum depth (10); BusyError with too many children;
        PermissionDeniedError and ValidationError for what is above this session's; the errors of
        `Paddock.sessions.create`.
        """
        check_terms("child", terms, ChildTerms)
        url = f"{self._path}/spawn"
        answer = await self._api.json("POST", url, body=given(**terms), timeout=ENGINE_SECONDS)
        return session_of(self._link, answer)

    @method
    async def fork(self, count: int) -> "tuple[Session[F], ...]":
        """New sessions that begin with this one's files: all of them, or none. It needs a key.

        Raises: ConflictError if it has no snapshot; RateLimitedError for the key's quota.
        """
        url = f"{self._path}/fork"
        answer = await self._api.json("POST", url, body={"count": count}, timeout=COPY_SECONDS)
        return tuple(session_of(self._link, each) for each in answer["sessions"])

    @method
    async def refresh(self) -> InspectedSession:
        """The current session, with its processes, usage, streams and latest denials."""
        return await self._inspect()

    @method
    async def budget(self) -> Budget:
        """The session's budget: limits, consumption, and what is left."""
        return read(Budget, await self._api.json("GET", f"{self._path}/budget"))

    @method
    async def report_usage(self, *, tokens: int = 0, cost: float = 0) -> Budget:
        """Counts tokens and dollars that your own calls of models used for the session.

        Returns the budget with them; the session ends if it is used up. Needs a key.
        """
        body = {"tokens": tokens, "cost": cost}
        return read(Budget, await self._api.json("POST", f"{self._path}/usage", body=body))

    @method
    async def pause(self) -> SessionInfo:
        """Freezes every process. Raises: InvalidTransitionError unless the session is active."""
        return await self._change("pause")

    @method
    async def resume(self) -> SessionInfo:
        """Continues the session. Raises: InvalidTransitionError unless it is paused."""
        return await self._change("resume")

    @method
    async def complete(self) -> SessionInfo:
        """Ends the session as a success."""
        return await self._change("complete")

    @method
    async def abort(self) -> SessionInfo:
        """Ends the session as a failure."""
        return await self._change("abort")

    @method
    async def interrupt(self, message: str | None = None) -> SessionInfo:
        """Ends everything that runs in the session; the session continues.

        A message waits for the next run.
        """
        return await self._change("interrupt", given(message=message))

    @method
    async def set_timeout(
        self, *, idle: int | None = None, wall: int | None = None
    ) -> SessionSettings:
        """Changes the time-outs, in seconds: without activity, and from the session's creation.

        None: as it is. The answer's `deadlines` say when it ends now. Raises: ValidationError above
        the operator's maximum.
        """
        return await self._set_times(idle_timeout=idle, wall_timeout=wall)

    @method
    async def keep_alive(self, seconds: int) -> SessionSettings:
        """Lengthens the time-outs so that neither ends the session for so long from now.

        The answer's `deadlines` say when it ends now. The time of its budget is not lengthened.
        Raises: ValidationError above the operator's maximum.
        """
        return await self._set_times(keep_alive=seconds)

    @method
    async def set_episode(self, episode_id: str | None) -> SessionInfo:
        """Names the episode of the session's work; None: it has none."""
        body = {"episode_id": episode_id}
        return self._take(await self._api.json("PUT", f"{self._path}/episode", body=body))

    @method
    async def rotate_handle(self) -> str:
        """Creates a new handle, which invalidates the old one."""
        answer = await self._api.json("POST", f"{self._path}/handle", body={})
        self.handle = read(Handle, answer).handle
        return self.handle

    @method
    async def close(self, *, purge: bool = False) -> None:
        """Ends the session and releases everything that it holds; with `purge` also its workspace.

        A session that has already ended is no error.
        """
        await self._close(purge=purge)

    async def _close(self, *, purge: bool) -> None:
        params = {"purge": purge}
        answer = await self._api.json("DELETE", self._path, params=params, timeout=ENGINE_SECONDS)
        self._closed = True
        if "status" in answer:  # a session that ended long ago has no object
            self._take(answer)

    async def _change(self, action: str, body: Mapping[str, Any] | None = None) -> SessionInfo:
        url = f"{self._path}/{action}"
        answer = await self._api.json("POST", url, body=body or {}, timeout=ENGINE_SECONDS)
        return self._take(answer)

    async def _set_times(self, **members: int | None) -> SessionSettings:
        url, body = f"{self._path}/settings", {"settings": given(**members)}
        answer = await self._api.json("PUT", url, body=body, timeout=ENGINE_SECONDS)
        return read(SessionSettings, answer)

    async def _lives(self) -> bool:
        try:
            return (await self._inspect()).live
        except NotFoundError:
            return False

    async def _inspect(self) -> InspectedSession:
        info = read(InspectedSession, await self._api.json("GET", self._path))
        self.info = info
        return info

    def _take(self, view: dict[str, Any]) -> SessionInfo:
        self.info = read(SessionInfo, view)
        return self.info

    async def _leave(self, failed: bool) -> None:
        """Closes the session unless it has ended; a failure does not hide an earlier one."""
        if self._closed:
            return
        # RuntimeError: the client itself is already closed.
        passing = (PaddockError, RuntimeError) if failed else (NotFoundError,)
        with suppress(*passing):
            await self._close(purge=False)

    async def __aenter__(self: "Session[Async]") -> "Session[Async]":
        return self

    async def __aexit__(
        self: "Session[Async]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._leave(error is not None)

    def __enter__(self: "Session[Sync]") -> "Session[Sync]":
        return self

    def __exit__(
        self: "Session[Sync]",
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._link.thread is not None:
            self._link.thread.run(self._leave(error is not None))


def session_of(link: Link, view: dict[str, Any]) -> Session[F]:
    """The session that an answer shows."""
    handle = view.get("handle")
    # `raw` may be shown and logged, so it must not contain the handle.
    info = read(SessionInfo, {name: view[name] for name in view if name != "handle"})
    return Session(link, info, handle if isinstance(handle, str) else None)
