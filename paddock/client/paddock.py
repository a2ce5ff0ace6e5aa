"""The client of a control plane: `Paddock` is awaited, `PaddockSync` blocks."""

from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from ssl import SSLContext
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from paddock.client.answers import read, read_items
from paddock.client.approvals import Approvals
from paddock.client.archives import Archives
from paddock.client.faces import Async, F, Face, Link, Sync, method, stream
from paddock.client.hooks import Hooks
from paddock.client.keys import Keys
from paddock.client.loop_thread import LoopThread
from paddock.client.memory import KeyMemory
from paddock.client.named_snapshots import NamedSnapshots
from paddock.client.nodes import Nodes, heard_of_node
from paddock.client.offers import Images, Models, Policies, Tools
from paddock.client.owners import Owners
from paddock.client.pool import Options, Pool
from paddock.client.renewing import RenewedKey, address_of
from paddock.client.requests import ENGINE_SECONDS, EXPLAIN, given
from paddock.client.retry import RetryPolicy
from paddock.client.secrets import Secrets
from paddock.client.session import Session, session_of
from paddock.client.sessions import Sessions
from paddock.client.snapshots import BytesProgress, send
from paddock.client.streams import never, resumed
from paddock.client.templates import Templates
from paddock.client.transport import Transport
from paddock.client.users import Users
from paddock.client.volumes import Volumes
from paddock.contract.audit import AuditEvent, DenialGroup, IndexProgress
from paddock.contract.explanations import Explanation
from paddock.contract.system import Readiness
from paddock.contract.usage import Usages

_PAGE = 500


class _Client(Face[F]):
    """The methods that both interfaces share."""

    def __init__(
        self,
        url: str | None = None,
        key: str | RenewedKey | None = None,
        *,
        context: str | None = None,
        timeout: float = 30.0,
        get_retries: int = 2,
        capacity_wait: float = 0.0,
        reconnect: float = 60.0,
        ssl: SSLContext | None = None,
    ) -> None:
        options = Options(timeout, RetryPolicy(get_retries, capacity_wait), reconnect, ssl)
        place, credential = address_of(url, key, context)
        link = Link(Transport(Pool(place, options), credential), self._thread())
        super().__init__(link)
        self.sessions: Sessions[F] = Sessions(link)
        self.policies: Policies[F] = Policies(link)
        self.images: Images[F] = Images(link)
        self.models: Models[F] = Models(link)
        self.tools: Tools[F] = Tools(link)
        self.keys: Keys[F] = Keys(link)
        self.users: Users[F] = Users(link)
        self.approvals: Approvals[F] = Approvals(link)
        self.archives: Archives[F] = Archives(link)
        self.secrets: Secrets[F] = Secrets(link, "/api")
        self.memory: KeyMemory[F] = KeyMemory(link)
        self.volumes: Volumes[F] = Volumes(link)
        self.templates: Templates[F] = Templates(link)
        self.snapshots: NamedSnapshots[F] = NamedSnapshots(link)
        self.hooks: Hooks[F] = Hooks(link)
        self.nodes: Nodes[F] = Nodes(link)
        self.owners: Owners[F] = Owners(link)

    def _thread(self) -> LoopThread | None:
        """The thread that runs coroutines for callers without an event loop."""
        return None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._api.pool.url}>"

    @method
    async def ready(self) -> Readiness:
        """Whether sessions can be created, and the checks behind that."""
        return read(Readiness, await self._api.json("GET", "/readyz", statuses=(503,)))

    @method
    async def usage(self, *, after: int = 0, session: str | None = None) -> Usages:
        """What this key's live sessions used in the last ten minutes; for an admin, the host too.

        `after` is the `round` of an earlier answer, whose samples are left out; `session` an id.
        """
        answer = self._api.json("GET", "/api/usage", params={"after": after, "session": session})
        return read(Usages, await answer)

    @method
    async def denials(self, *, since: datetime | None = None) -> tuple[DenialGroup, ...]:
        """What was denied most in this key's sessions (for an admin, in all), of the latest 1,000.

        `since` needs a time zone. Denials of one operation by one rule in one session are a group.
        """
        params = given(**{"from": since.isoformat() if since else None})
        answer = await self._api.json("GET", "/api/audit/denials", params=params)
        return read_items(DenialGroup, answer)

    @method
    async def request(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,
        params: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Calls any operation that answers with JSON, and returns its answer.

        `path` begins with a slash; `body` is JSON. Only a GET is ever tried again.
        """
        return await self._api.json(
            method, quote(path, safe="/%"), body=body, params=params, timeout=ENGINE_SECONDS
        )

    @method
    async def restore(
        self, local: str | Path, *, id: str | None = None, progress: BytesProgress | None = None
    ) -> Session[F]:
        """Creates the session of a snapshot, as `Session.snapshot` writes it, with its id.

        With another `id`, it is a new session whose time and budget begin anew. `progress` is
        called with the bytes so far. If it fails, nothing is created. Raises: ConflictError if the
        id is known here, ValidationError for an altered snapshot, OSError, and the errors of
        `sessions.create`.
        """
        return session_of(self._link, await send(self._api, Path(local), id, progress))

    @method
    async def explain(
        self,
        *,
        session: str | None = None,
        level: str | None = None,
        command: str | None = None,
        argv: Sequence[str] | None = None,
        shell: str | None = None,
        path: str | None = None,
        cwd: str | None = None,
        policy: str | Mapping[str, Any] | None = None,
        operation: str | None = None,
        args: Mapping[str, Any] | None = None,
    ) -> Explanation:
        """Explains how a session's or a level's rules decide a command or a path; nothing is run.

        Give one of `session` and `level`, and one of `command`, `argv`, `shell` and `path`. For an
        `operation` of a turn and its `args`, such as `ref`, give one of `session` and `policy`.
        """
        body = given(
            command=command,
            argv=argv,
            shell=shell,
            path=path,
            cwd=cwd,
            session=session,
            level=level,
            policy=policy,
            operation=operation,
            args=args,
        )
        return read(Explanation, await self._api.json("POST", EXPLAIN, body=body))

    @stream
    async def events(
        self, *, after: int | None = None, on_node: Callable[[str, bool], None] | None = None
    ) -> AsyncGenerator[AuditEvent, None]:
        """Audit events of all sessions of this key (for an admin, of all sessions), without end.

        `after` is the `id` of the last event received; None: new events only. Survives broken
        connections; if `after` is None, events are missed during a break before the first event.
        A cluster takes only 0 and None. If one of its nodes goes away or is back, `on_node`
        receives its name, and whether it is there; no event of it is lost.
        """
        async with aclosing(resumed(self._api, "/api/events", after, never)) as events:
            async for event in events:
                if not heard_of_node(event, on_node):
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
        """Recorded events of all sessions of this key (for an admin, of all), newest first.

        Sessions that ended long ago are included. A filter that is None is off; `text` is searched
        in the whole event; `since` and `until` need a time zone, and are inclusive. Archived chains
        are not searched: `on_archived` receives their number before the first event, and again if
        it changes.
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

    @method
    async def reindex(self, *, after: int | None = None) -> IndexProgress:
        """Begins to make the index of `search` again; for admins' keys.

        With `after`, the `position` of an earlier answer, it waits some seconds for progress.
        """
        body = given(after=after)
        return read(IndexProgress, await self._api.json("POST", "/api/audit/index", body=body))


class Paddock(_Client[Async]):
    """A control plane, for asyncio.

    ```python
    async with Paddock("http://127.0.0.1:8700", key) as p:
        async with await p.sessions.create(permission_level="low") as s:
            result = await s.exec("ls -la")
    ```

    Without arguments, address and key come from `PADDOCK_URL` and `PADDOCK_KEY`, from a context
    (`PADDOCK_CONTEXT`, or the current one of `paddock login`), or from the control plane of this
    machine, as for the command line.

    Args:
        url: of the control plane, without `/api`.
        key: an API key, or a session's handle, which may do that session's work only; or a
            token that is renewed (`RenewedKey`), as that of a context is.
        context: a context of `paddock login`, whose address and key are used.
        timeout: seconds for an answer. Commands, transfers and the engine's work have limits
            of their own.
        get_retries: how often a GET is retried after a missing answer or a temporary error.
            Other requests are never retried.
        capacity_wait: seconds that a new session may wait for capacity.
        reconnect: seconds for which a stream tries to reconnect.
        ssl: for a control plane with a private certificate.

    Nothing is sent before the first call. Raises: ValueError for an invalid URL or key, and if
    nothing names them.
    """

    async def close(self) -> None:
        """Closes the connections; sessions continue."""
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

    Its methods may be called from any number of threads, but not from one that runs an event loop.
    The arguments are those of `Paddock`.
    """

    def _thread(self) -> LoopThread:
        return LoopThread()

    def close(self) -> None:
        """Closes the connections and ends the thread; sessions continue."""
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
