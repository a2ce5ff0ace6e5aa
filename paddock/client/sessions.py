"""The sessions of a key."""

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.client.audit import Audit
from paddock.client.consume import Consume
from paddock.client.faces import F, Face, method
from paddock.client.packs import pack_body
from paddock.client.parsing import items, read
from paddock.client.requests import ENGINE_SECONDS, given, session_path
from paddock.client.session import Session, session_of
from paddock.client.terminals import Terminals
from paddock.client.transport import Transport
from paddock.contract.inspection import InspectedSession
from paddock.contract.packs import ContextPack
from paddock.contract.sessions import Session as SessionInfo

_SESSIONS = "/api/sessions"
_PAGE = 1000


class Sessions(Face[F]):
    """The sessions of this client's key (for an admin, of all keys).

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
        idle_action: str | None = None,
        wall_timeout: int | None = None,
        budget: Mapping[str, int | float] | None = None,
        mounts: Sequence[str] | None = None,
        role: str | None = None,
        tools: Sequence[str] | None = None,
        policy: str | Mapping[str, Any] | None = None,
        egress: Mapping[str, Any] | None = None,
        work_id: str | None = None,
        lease_id: str | None = None,
        policy_resolved_ref: str | None = None,
        episode_id: str | None = None,
        consume: ContextPack | Mapping[str, Any] | None = None,
    ) -> Session[F]:
        """Creates a session; its sandbox runs when this returns.

        Args:
            id: letters, digits, `.`, `_` and `-`; None: generated. With an id that was used before,
                the session gets that id's workspace again.
            permission_level: low, medium, high, or one of the operator's; None: medium.
            image: the sandbox image; None: the control plane's default.
            labels: for filtering.
            env: variables of all its commands; they are stored, so not for secrets.
            secrets: variables of all its commands that are never stored, and are removed from all
                records; each has 8 bytes or more. If the level lists variables, other names must
                begin with `SECRET_`.
            limits: lower ones than the level's: `cpus`, `memory_bytes`, `pids`, `tmp_bytes`,
                `workspace_bytes`.
            idle_timeout: seconds without work until it is ended or suspended.
            idle_action: `end` or `suspend`: then it keeps its workspace, and has a sandbox again at
                its next use; None: its level's.
            wall_timeout: seconds until it is ended, used or not.
            budget: its total limits: `time` and `cpu_seconds` in seconds, `cost` in dollars,
                `commands`, `output_bytes`, `audit_bytes`, `iterations`, `tokens`, `egress_bytes`.
            mounts: names from the operator's list of mounts, in addition to the level's.
            role: its agent's role in Cedar policies; None: `agent`.
            tools: the tools that it may open; None: any that its level permits.
            policy: what its turns may do: the name of a session policy, or its members; None:
                `SAFE_ANALYSIS`.
            egress: rules that narrow its way out, as `only` of `Session.egress.set`.
            work_id: your name of the work that it is for; `list` finds sessions by it.
            lease_id: your lease of the work, of 8 bytes or more: never stored or shown, and removed
                from all records.
            policy_resolved_ref: your reference to the policy that you have applied.
            episode_id: your name of the episode of the work; see `Session.set_episode`.
            consume: a context pack, as `pack` makes it: the session reads its files, which must be
                in the workspace already, and nothing else of the workspace.

        Raises: CapacityExhaustedError (see the client's `capacity_wait`), ConflictError if the id
        is in use or the workspace differs from the pack, ValidationError, EngineUnavailableError.
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
            idle_action=idle_action,
            wall_timeout=wall_timeout,
            budget=budget,
            mounts=mounts,
            role=role,
            tools=tools,
            policy=policy,
            egress=egress,
            work_id=work_id,
            lease_id=lease_id,
            policy_resolved_ref=policy_resolved_ref,
            episode_id=episode_id,
            consume=pack_body(consume),
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
        idle_action: str | None = None,
        wall_timeout: int | None = None,
        budget: Mapping[str, int | float] | None = None,
        mounts: Sequence[str] | None = None,
        role: str | None = None,
        tools: Sequence[str] | None = None,
        policy: str | Mapping[str, Any] | None = None,
        egress: Mapping[str, Any] | None = None,
        work_id: str | None = None,
        lease_id: str | None = None,
        policy_resolved_ref: str | None = None,
        episode_id: str | None = None,
        consume: ContextPack | Mapping[str, Any] | None = None,
    ) -> Session[F]:
        """The existing session with that id, or a new one, created as by `create`.

        Its `handle` is None if the session existed before.
        """
        body = given(
            permission_level=permission_level,
            image=image,
            labels=labels,
            env=env,
            secrets=secrets,
            limits=limits,
            idle_timeout=idle_timeout,
            idle_action=idle_action,
            wall_timeout=wall_timeout,
            budget=budget,
            mounts=mounts,
            role=role,
            tools=tools,
            policy=policy,
            egress=egress,
            work_id=work_id,
            lease_id=lease_id,
            policy_resolved_ref=policy_resolved_ref,
            episode_id=episode_id,
            consume=pack_body(consume),
        )
        return self._session(
            await self._api.json("PUT", session_path(id), body=body, timeout=ENGINE_SECONDS)
        )

    @method
    async def refine(
        self,
        id: str,
        consume: ContextPack | Mapping[str, Any],
        *,
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> Session[F]:
        """A new session for the same work, like one that ended by a `CONTEXT_MISS`, with that pack.

        Values of variables are not kept, so they are given again. Raises: ConflictError if it ended
        otherwise, or the workspace differs from the pack; MaxRefinementsError; NotFoundError.
        """
        body = given(consume=pack_body(consume), env=env, secrets=secrets)
        url = f"{session_path(id)}/refine"
        return self._session(await self._api.json("POST", url, body=body, timeout=ENGINE_SECONDS))

    @method
    async def get(self, id: str) -> Session[F]:
        """A live or recently ended session. Raises: NotFoundError."""
        return Session(self._link, await self._inspected(id))

    @method
    async def inspect(self, id: str) -> InspectedSession:
        """The session with that id and its current activity, in one request."""
        return await self._inspected(id)

    @method
    async def attach(self, id: str, handle: str) -> Session[F]:
        """A session that uses its handle for everything instead of the client's key.

        Raises: UnauthorizedError if the handle is invalid.
        """
        api = Transport(self._api.pool, handle)
        info = read(InspectedSession, await api.json("GET", session_path(id)))
        return Session(self._link._replace(transport=api), info, handle)

    @method
    async def list(
        self,
        *,
        status: str | None = None,
        label: tuple[str, str] | None = None,
        work_id: str | None = None,
        parent: str | None = None,
    ) -> tuple[Session[F], ...]:
        """Live and recently ended sessions, newest first, optionally of one `status` or work.

        With `parent`, the children of the session with that id, which are not listed otherwise.
        With `ended`, or a final status, all sessions that ever ended so.
        """
        params: dict[str, Any] = {
            "limit": _PAGE,
            "status": status,
            "work_id": work_id,
            "parent": parent,
            "cursor": None,
        }
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
        """Ends the session with that id; with `purge` also removes its workspace.

        A session that has already ended is no error, and the workspace of one that ended long ago
        can be purged. Raises: NotFoundError.
        """
        await self._api.json(
            "DELETE", session_path(id), params={"purge": purge}, timeout=ENGINE_SECONDS
        )

    @method
    async def pause(self, id: str) -> SessionInfo:
        """Freezes every process of the session with that id, in one request."""
        return await self._change(id, "pause")

    @method
    async def abort(self, id: str) -> SessionInfo:
        """Ends the session with that id as a failure, in one request."""
        return await self._change(id, "abort")

    async def _inspected(self, id: str) -> InspectedSession:
        return read(InspectedSession, await self._api.json("GET", session_path(id)))

    async def _change(self, id: str, action: str) -> SessionInfo:
        url = f"{session_path(id)}/{action}"
        answer = await self._api.json("POST", url, body={}, timeout=ENGINE_SECONDS)
        return read(SessionInfo, answer)

    def audit(self, id: str, *, incarnation: int | None = None) -> Audit[F]:
        """The audit chain of a session, which can be read long after its end.

        If several sessions had the id, `incarnation` selects one, from 1; the default is the
        latest.
        """
        return Audit(self._link, session_path(id), incarnation)

    def consume(self, id: str) -> Consume[F]:
        """The pack of the latest session with that id that had one, also long after its end."""
        return Consume(self._link, session_path(id))

    def terminals(self, id: str, *, incarnation: int | None = None) -> Terminals[F]:
        """The past and present terminals of a session, which can be read long after its end.

        If several sessions had the id, `incarnation` selects one, from 1; the default is the
        latest. Only terminals of a live session can be opened, used or ended.
        """
        return Terminals(self._link, session_path(id), incarnation)

    def _session(self, view: dict[str, Any]) -> Session[F]:
        return session_of(self._link, view)
