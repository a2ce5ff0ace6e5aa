"""The sessions of a key."""

from collections.abc import Mapping
from typing import Any, Unpack
from urllib.parse import urlencode

from paddock.client.answers import items, read
from paddock.client.audit import Audit
from paddock.client.consume import Consume
from paddock.client.faces import F, Face, method
from paddock.client.packs import pack_body
from paddock.client.requests import ENGINE_SECONDS, TEMPLATE_SECONDS, given, session_path
from paddock.client.session import Session, session_of
from paddock.client.session_terms import SessionTerms, session_body
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
    async def create(self, *, id: str | None = None, **terms: Unpack[SessionTerms]) -> Session[F]:
        """Creates a session; its sandbox runs when this returns.

        Args:
            id: letters, digits, `.`, `_` and `-`; None: generated. With an id that was used before,
                the session gets that id's workspace again.
            terms: what the session may do and use; `SessionTerms` describes each.

        Raises: CapacityExhaustedError (see the client's `capacity_wait`), ConflictError if the id
        is in use or the workspace differs from the pack, ValidationError, EngineUnavailableError.
        """
        body = session_body(terms, id=id)
        return self._session(
            await self._api.json("POST", _SESSIONS, body=body, timeout=_seconds(body))
        )

    @method
    async def ensure(self, id: str, **terms: Unpack[SessionTerms]) -> Session[F]:
        """The existing session with that id, or a new one, created as by `create`.

        Its `handle` is None if the session existed before.
        """
        body = session_body(terms)
        return self._session(
            await self._api.json("PUT", session_path(id), body=body, timeout=_seconds(body))
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
        """Creates a session with that pack, for the work of one that ended by a `CONTEXT_MISS`.

        It is otherwise like the earlier one. Values of variables are not kept, so they are given
        again. Raises: ConflictError if the earlier one ended otherwise, or the workspace differs
        from the pack; MaxRefinementsError; NotFoundError.
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
        metadata: Mapping[str, str] | None = None,
        work_id: str | None = None,
        parent: str | None = None,
    ) -> tuple[Session[F], ...]:
        """Live and recently ended sessions, newest first, optionally of one `status` or work.

        With `metadata`, those that have all of these texts, and perhaps more.
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
        params["metadata"] = urlencode(metadata) if metadata else None
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


def _seconds(body: Mapping[str, Any]) -> float:
    """How long a new session may take; a template may have to be prepared first."""
    return ENGINE_SECONDS if body.get("template") is None else TEMPLATE_SECONDS
