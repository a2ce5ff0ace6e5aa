"""One session, with a client of its own: `with paddock.session() as s`."""

from types import TracebackType
from typing import Unpack

from paddock.client.faces import Async, Sync
from paddock.client.paddock import Paddock, PaddockSync
from paddock.client.session import Session
from paddock.client.session_terms import SessionTerms


class OneSession:
    """A session that begins and ends with a block, which may be `with` or `async with`."""

    def __init__(
        self,
        url: str | None,
        key: str | None,
        context: str | None,
        id: str | None,
        terms: SessionTerms,
    ) -> None:
        self._address = (url, key, context)
        self._id = id
        self._terms = terms
        self._client: Paddock | PaddockSync | None = None
        self._session: Session[Async] | Session[Sync] | None = None

    def __enter__(self) -> Session[Sync]:
        url, key, context = self._address
        client = PaddockSync(url, key, context=context)
        try:
            session = client.sessions.create(id=self._id, **self._terms)
        except BaseException:
            client.close()
            raise
        self._client, self._session = client, session
        return session

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        client, session = self._client, self._session
        if not isinstance(client, PaddockSync) or session is None:
            raise RuntimeError("the session was not begun by `with`")
        try:
            client.sessions.close(session.id, purge=self._id is None)
        except Exception:
            if error is None:  # a failure does not hide an earlier one
                raise
        finally:
            client.close()

    async def __aenter__(self) -> Session[Async]:
        url, key, context = self._address
        client = Paddock(url, key, context=context)
        try:
            session = await client.sessions.create(id=self._id, **self._terms)
        except BaseException:
            await client.close()
            raise
        self._client, self._session = client, session
        return session

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        client, session = self._client, self._session
        if not isinstance(client, Paddock) or session is None:
            raise RuntimeError("the session was not begun by `async with`")
        try:
            await client.sessions.close(session.id, purge=self._id is None)
        except Exception:
            if error is None:
                raise
        finally:
            await client.close()


def session(
    url: str | None = None,
    key: str | None = None,
    *,
    context: str | None = None,
    id: str | None = None,
    **terms: Unpack[SessionTerms],
) -> OneSession:
    """A session for one block, with a client of its own.

    ```python
    with paddock.session(permission_level="low") as s:
        print(s.exec("uname -s").stdout)

    async with paddock.session() as s:
        print((await s.exec("uname -s")).stdout)
    ```

    At the end of the block the session is closed, and its files are removed unless `id` names it.

    Args:
        url: of the control plane; None, as for `key`: as `Paddock` finds them.
        key: an API key.
        context: a context of `paddock login`.
        id: the session's id, and its workspace's; None: generated.
        terms: what the session may do and use; `SessionTerms` describes each.

    Raises: the errors of `Paddock` and of `sessions.create`.
    """
    return OneSession(url, key, context, id, terms)
