"""What a session may reach through its way out."""

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.client.answers import read
from paddock.client.faces import F, Face, Link, method
from paddock.client.requests import given
from paddock.contract.egress import EgressDrafts, SessionEgress

Rule = Mapping[str, Any]
Rules = Mapping[str, Sequence[Rule]]
# Rules that are not to be changed.
_UNCHANGED: Rules = {}


class Egress(Face[F]):
    """The rules of a session's way out.

    A rule is `{"host": …}` or `{"cidr": …}`, and may have `ports`, `methods`, `paths` and `inspect`
    as in a level's file.

    All methods raise `PaddockAPIError` in the class of its code, and the other errors of
    `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/egress"

    @method
    async def get(self) -> SessionEgress:
        """The rules in force, and what was used."""
        return read(SessionEgress, await self._api.json("GET", self._path))

    @method
    async def set(
        self,
        *,
        only: Rules | None = _UNCHANGED,
        also: Rules | None = _UNCHANGED,
        revision: int | None = None,
    ) -> SessionEgress:
        """Sets the session's own rules, from the next request on; None removes them.

        Connections that are not allowed any more are ended.

        Args:
            only: a request must be allowed by these, too; with `deny` alone, everything else stays
                allowed.
            also: these are allowed or denied besides the level's; for admins only.
            revision: that of the rules to change; None: any.

        Raises: ConflictError if the rules have another revision, or the session's level has no way
        out; PermissionDeniedError, ValidationError naming the place.
        """
        body = given(revision=revision)
        for name, rules in (("only", only), ("also", also)):
            if rules is not _UNCHANGED:
                body[name] = None if rules is None else dict(rules)
        return read(SessionEgress, await self._api.json("PUT", self._path, body=body))

    @method
    async def add(
        self,
        *,
        allow: Sequence[Rule] = (),
        deny: Sequence[Rule] = (),
        drafts: Sequence[int] = (),
    ) -> SessionEgress:
        """Adds these rules, and the rules that the drafts with these numbers propose.

        Raises: ConflictError, PermissionDeniedError, ValidationError.
        """
        body = {"allow": list(allow), "deny": list(deny), "drafts": list(drafts)}
        return read(SessionEgress, await self._api.json("POST", f"{self._path}/rules", body=body))

    @method
    async def drafts(self) -> EgressDrafts:
        """What was denied, by the rules that would allow it."""
        return read(EgressDrafts, await self._api.json("GET", f"{self._path}/drafts"))
