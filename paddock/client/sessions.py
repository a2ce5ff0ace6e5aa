"""The sessions of a key."""

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.client.audit import Audit
from paddock.client.faces import F, Face, method
from paddock.client.parsing import items, read
from paddock.client.requests import ENGINE_SECONDS, given, session_path
from paddock.client.session import Session
from paddock.client.terminals import Terminals
from paddock.client.transport import Transport
from paddock.contract.inspection import InspectedSession
from paddock.contract.sessions import Session as SessionInfo

_SESSIONS = "/api/sessions"
_PAGE = 1000


class Sessions(Face[F]):
    """The sessions of this client's key (an admin's: of everybody).

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    @method
    async def create(
        self,
        *,
        id: str | None = None,
        permission_level: str | None = None,
        image: str | None = None,
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        limits: Mapping[str, int | float] | None = None,
        idle_timeout: int | None = None,
        wall_timeout: int | None = None,
        budget: Mapping[str, int | float] | None = None,
        mounts: Sequence[str] | None = None,
        role: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> Session[F]:
        """Creates a session; its sandbox is up when this returns.

        Args:
            id: letters, digits, `.`, `_` and `-`; None: one is made. With an id that was
                used before, the session gets that one's workspace again.
            permission_level: low, medium, high, or one of the operator's; None: medium.
            image: the sandbox image; None: the control plane's.
            labels: to find it by.
            env: variables of all its commands; they are stored, and not for what is secret.
            secrets: variables of all its commands that are never stored, and are cut out of
                whatever is recorded; each has 8 bytes or more. Where the level lists variables,
                their names begin with `SECRET_`.
            limits: lower ones than the level's: `cpus`, `memory_bytes`, `pids`, `tmp_bytes`,
                `workspace_bytes`.
            idle_timeout: seconds without work until it is ended.
            wall_timeout: seconds until it is ended, used or not.
            budget: what it may use up in all: `time` and `cpu_seconds` in seconds, `cost` in
                dollars, `commands`, `output_bytes`, `audit_bytes`, `iterations`, `tokens`,
                `egress_bytes`.
            mounts: names of the operator's list of mounts, besides the level's.
            role: who Cedar policies take its agent for; None: `agent`.
            tools: those that it may open; None: any that its level permits.

        Raises: CapacityExhaustedError (see the client's `capacity_wait`), ConflictError when
        the id is in use, ValidationError, EngineUnavailableError.
        """
        body = given(
            id=id,
            permission_level=permission_level,
            image=image,
            labels=labels,
            env=env,
            secrets=secrets,
            limits=limits,
            idle_timeout=idle_timeout,
            wall_timeout=wall_timeout,
            budget=budget,
            mounts=mounts,
            role=role,
            tools=tools,
        )
        return self._session(
            await self._api.json("POST", _SESSIONS, body=body, timeout=ENGINE_SECONDS)
        )

    @method
    async def ensure(
        self,
        id: str,
        *,
        permission_level: str | None = None,
        image: str | None = None,
        labels: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        limits: Mapping[str, int | float] | None = None,
        idle_timeout: int | None = None,
        wall_timeout: int | None = None,
        budget: Mapping[str, int | float] | None = None,
        mounts: Sequence[str] | None = None,
        role: str | None = None,
        tools: Sequence[str] | None = None,
    ) -> Session[F]:
        """The session of that id as it is, or a new one as `create` makes it.

        Its `handle` is None where the session was there before.
        """
        body = given(
            permission_level=permission_level,
            image=image,
            labels=labels,
            env=env,
            secrets=secrets,
            limits=limits,
            idle_timeout=idle_timeout,
            wall_timeout=wall_timeout,
            budget=budget,
            mounts=mounts,
            role=role,
            tools=tools,
        )
        return self._session(
            await self._api.json("PUT", session_path(id), body=body, timeout=ENGINE_SECONDS)
        )

    @method
    async def get(self, id: str) -> Session[F]:
        """A session that lives, or ended lately. Raises: NotFoundError."""
        return Session(self._link, await self._inspected(id))

    @method
    async def inspect(self, id: str) -> InspectedSession:
        """What the session of that id is and what goes on in it, in one request."""
        return await self._inspected(id)

    @method
    async def attach(self, id: str, handle: str) -> Session[F]:
        """A session by its handle: everything is done with it, not with the client's key.

        Raises: UnauthorizedError where the handle is void.
        """
        api = Transport(self._api.pool, handle)
        info = read(InspectedSession, await api.json("GET", session_path(id)))
        return Session(self._link._replace(transport=api), info, handle)

    @method
    async def list(
        self, *, status: str | None = None, label: tuple[str, str] | None = None
    ) -> tuple[Session[F], ...]:
        """The sessions that live or ended lately, newest first, perhaps of one `status`.

        With `ended`, or a status that is final, all that ever ended so.
        """
        params: dict[str, Any] = {"limit": _PAGE, "status": status, "cursor": None}
        params["label"] = None if label is None else ":".join(label)
        found: tuple[Session[F], ...] = ()
        while True:
            page = await self._api.json("GET", _SESSIONS, params=params)
            found += tuple(self._session(view) for view in items(page))
            params["cursor"] = page.get("next")
            if params["cursor"] is None:
                return found

    @method
    async def close(self, id: str, *, purge: bool = False) -> None:
        """Ends the session of that id; with `purge` also removes its workspace.

        A session that has ended already is fine; the workspace of one that ended long ago can
        be purged. Raises: NotFoundError.
        """
        await self._api.json(
            "DELETE", session_path(id), params={"purge": purge}, timeout=ENGINE_SECONDS
        )

    @method
    async def pause(self, id: str) -> SessionInfo:
        """Freezes every process of the session of that id, in one request."""
        return await self._change(id, "pause")

    @method
    async def abort(self, id: str) -> SessionInfo:
        """Ends the session of that id as a failure, in one request."""
        return await self._change(id, "abort")

    async def _inspected(self, id: str) -> InspectedSession:
        return read(InspectedSession, await self._api.json("GET", session_path(id)))

    async def _change(self, id: str, action: str) -> SessionInfo:
        url = f"{session_path(id)}/{action}"
        answer = await self._api.json("POST", url, body={}, timeout=ENGINE_SECONDS)
        return read(SessionInfo, answer)

    def audit(self, id: str, *, incarnation: int | None = None) -> Audit[F]:
        """The audit chain of a session, which can be read when the session is long gone.

        Of several sessions of that id, one after the other, it is that of the latest, or the one
        of that number, from 1.
        """
        return Audit(self._link, session_path(id), incarnation)

    def terminals(self, id: str, *, incarnation: int | None = None) -> Terminals[F]:
        """The terminals that a session has, and had, which can be read when it is long gone.

        Of several sessions of that id, one after the other, those of the latest, or of the one
        of that number, from 1. Only those of a session that lives can be opened, used or ended.
        """
        return Terminals(self._link, session_path(id), incarnation)

    def _session(self, view: dict[str, Any]) -> Session[F]:
        handle = view.get("handle")
        # What is kept as `raw` may be shown and logged.
        info = read(SessionInfo, {name: view[name] for name in view if name != "handle"})
        return Session(self._link, info, handle if isinstance(handle, str) else None)
