"""What a session staged."""

from collections.abc import Iterable, Sequence

from paddock.client.answers import read
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import given
from paddock.contract.proposals import Committed, Proposal, Proposals, RolledBack


class SessionProposals(Face[F]):
    """The changes of a session in proposal mode, which the host commits or discards.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`. A session's handle can list and discard them.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/proposals"

    @method
    async def list(self, *, after: str = "", limit: int = 1000) -> Proposals:
        """A page of the changes, in order of paths; its `next` is the `after` of the next page."""
        query = {"after": after, "limit": str(limit)}
        return read(Proposals, await self._api.json("GET", self._path, params=query))

    @method
    async def commit(
        self,
        *,
        paths: Sequence[str] | None = None,
        expected: Iterable[Proposal] | None = None,
    ) -> Committed:
        """Applies the changes to the workspace, all or none. Nothing may run in the session.

        Args:
            paths: only these, and what is below them.
            expected: only these, and only as they were listed.

        Raises: ConflictError with `fields["conflicts"]` and `fields["refused"]`, and nothing is
        changed; BusyError, ValidationError.
        """
        wanted = None
        if expected is not None:
            wanted = {
                each.ref: {"fingerprint": each.fingerprint, "mode": each.mode} for each in expected
            }
        body = given(paths=None if paths is None else list(paths), expected=wanted)
        return read(Committed, await self._api.json("POST", f"{self._path}/commit", body=body))

    @method
    async def rollback(self) -> RolledBack:
        """Discards all changes. Raises: BusyError while something runs in the session."""
        return read(RolledBack, await self._api.json("POST", f"{self._path}/rollback", body={}))
