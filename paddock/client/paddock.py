"""The client of a control plane: `Paddock` to be awaited, `PaddockSync` to block."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from datetime import datetime
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self

from paddock.client.approvals import Approvals
from paddock.client.archives import Archives
from paddock.client.faces import Async, F, Face, Link, LoopThread, Sync, method, stream
from paddock.client.parsing import read, read_items
from paddock.client.requests import EXPLAIN, given
from paddock.client.retry import RetryPolicy
from paddock.client.sessions import Sessions
from paddock.client.streams import never, resumed
from paddock.client.transport import Options, Pool, Transport
from paddock.contract.audit import AuditEvent
from paddock.contract.system import Explanation, Level, Readiness

_PAGE = 500


class Policies(Face[F]):
    """The permission levels."""

    @method
    async def list(self) -> tuple[Level, ...]:
        """The levels, lowest first."""
        return read_items(Level, await self._api.json("GET", "/api/policies"))


class _Client(Face[F]):
    """What both faces of the client have."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        timeout: float = 30.0,
        get_retries: int = 2,
        capacity_wait: float = 0.0,
        reconnect: float = 60.0,
        ssl: SSLContext | None = None,
    ) -> None:
        options = Options(timeout, RetryPolicy(get_retries, capacity_wait), reconnect, ssl)
        transport = Transport(Pool(url, options), key)
        link = Link(transport, self._thread())
        super().__init__(link)
        self.sessions: Sessions[F] = Sessions(link)
        self.policies: Policies[F] = Policies(link)
        self.approvals: Approvals[F] = Approvals(link)
        self.archives: Archives[F] = Archives(link)

    def _thread(self) -> LoopThread | None:
        """What runs the coroutines of callers that have no event loop."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._api.pool.url}>"

    @method
    async def ready(self) -> Readiness:
        """Whether sessions can be created, and what each thing they need says."""
        return read(Readiness, await self._api.json("GET", "/readyz", statuses=(503,)))

    @method
    async def explain(
        self,
        *,
        session: str | None = None,
        level: str | None = None,
        command: str | None = None,
        argv: Sequence[str] | None = None,
        path: str | None = None,
        cwd: str | None = None,
    ) -> Explanation:
        """What a session's or a level's rules say of a command or a path; nothing is done.

        One of `session` and `level`, and one of `command`, `argv` and `path` are given.
        """
        body = given(command=command, argv=argv, path=path, cwd=cwd, session=session, level=level)
        return read(Explanation, await self._api.json("POST", EXPLAIN, body=body))

    @stream
    async def events(self, *, after: int | None = None) -> AsyncGenerator[AuditEvent, None]:
        """Audit events of all sessions of this key (an admin's: of everybody), without end.

        `after` is the `id` of the last one seen; None: new ones only. Goes on over broken
        connections; where `after` is None, events during a break before the first are missed.
        """
        async with aclosing(resumed(self._api, "/api/events", after, never)) as events:
            async for event in events:
                yield read(AuditEvent, event.data)

    @stream
    async def search(
        self,
        *,
        session: str | None = None,
        incarnation: int | None = None,
        owner: str | None = None,
        operation: str | None = None,
        decision: str | None = None,
        rule: str | None = None,
        actor: str | None = None,
        text: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        on_archived: Callable[[int], None] | None = None,
    ) -> AsyncGenerator[AuditEvent, None]:
        """Events on record of all sessions of this key (an admin's: of everybody), newest first.

        Those of sessions that ended long ago, too. Filters that are None are off; `text` is
        looked for in the whole event; `since` and `until` have a time zone, and are included.

        Archived chains are not searched: `on_archived` is told of how many sessions, before the
        first event, and again where it has changed.
        """
        params = {
            "session": session,
            "incarnation": incarnation,
            "owner": owner,
            "operation": operation,
            "decision": decision,
            "rule": rule,
            "actor": actor,
            "text": text,
            "from": None if since is None else since.isoformat(),
            "to": None if until is None else until.isoformat(),
            "limit": _PAGE,
            "cursor": None,
        }
        archived: Any = None
        while True:
            page = await self._api.json("GET", "/api/audit", params=params)
            if on_archived is not None and page.get("archived") != archived:
                archived = page.get("archived")
                on_archived(archived)
            for event in read_items(AuditEvent, page):
                yield event
            params["cursor"] = page.get("next")
            if params["cursor"] is None:
                return


class Paddock(_Client[Async]):
    """A control plane, for asyncio.

    ```python
    async with Paddock("http://127.0.0.1:8700", key) as p:
        async with await p.sessions.create(permission_level="low") as s:
            result = await s.exec("ls -la")
    ```

    Args:
        url: of the control plane, without `/api`.
        key: an API key, or a session's handle, which may do that session's work only.
        timeout: seconds for an answer. Commands, transfers and the engine's work have limits
            of their own.
        get_retries: how often a GET is sent again when no answer came, or one that will
            pass. Other requests never are.
        capacity_wait: seconds that a new session may wait for a free place.
        reconnect: seconds for which a stream tries to get its connection back.
        ssl: for a control plane behind a certificate of one's own.

    Nothing is sent before the first call. Raises: ValueError for a URL or key that can't be.
    """

    async def close(self) -> None:
        """Closes the connections; sessions go on."""
        await self._api.pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


class PaddockSync(_Client[Sync]):
    """A control plane, for programs without an event loop: the same methods, which block.

    ```python
    with PaddockSync("http://127.0.0.1:8700", key) as p:
        with p.sessions.create(permission_level="low") as s:
            for event in s.exec_stream(argv=["ls", "-la"]):
                ...
    ```

    Its methods may be called from any number of threads, but not from one that runs an event
    loop. Arguments are as of `Paddock`.
    """

    def _thread(self) -> LoopThread:
        return LoopThread()

    def close(self) -> None:
        """Closes the connections and ends the thread; sessions go on."""
        if self._link.thread is not None:
            self._link.thread.close(self._api.pool.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
