"""API keys of a control plane, for its admins."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypedDict, Unpack

from paddock.client.answers import read, read_items
from paddock.client.faces import F, Face, method
from paddock.client.requests import check_terms, given, segment
from paddock.contract.keys import CreatedKey, Key, Role

_KEYS = "/api/keys"


class KeyTerms(TypedDict, total=False):
    """The bounds of a new key. None, or none at all, means that the instance's apply.

    owner: for a viewer: the key whose sessions it reads.
    scope: for a viewer without an owner: "all".
    max_sessions: live sessions.
    max_cpus, max_memory_bytes: of its live sessions together.
    max_workspaces, max_workspace_bytes: of its workspaces together, kept ones included.
    requests_per_second, handle_requests_per_second: with it, and with each handle of its sessions.
    max_audit_bytes: the size of its sessions' records.
    max_egress_bytes_per_day: to and from the outside on one day, in UTC.
    max_level: the highest level of its sessions.
    images, tools: the only ones that it may use.
    scopes: what it may do of what its role may.
    max_idle_timeout, max_wall_timeout: the longest time-outs of its sessions, in seconds.
    expires_at: with a time zone; None: never.
    """

    owner: str | None
    scope: Literal["all"] | None
    max_sessions: int | None
    max_cpus: float | None
    max_memory_bytes: int | None
    max_workspaces: int | None
    max_workspace_bytes: int | None
    requests_per_second: float | None
    handle_requests_per_second: float | None
    max_audit_bytes: int | None
    max_egress_bytes_per_day: int | None
    max_level: str | None
    images: Sequence[str] | None
    tools: Sequence[str] | None
    scopes: Sequence[str] | None
    max_idle_timeout: int | None
    max_wall_timeout: int | None
    expires_at: datetime | None


class Keys(Face[F]):
    """The keys in force. All methods raise `PaddockAPIError`, and need an admin's key."""

    @method
    async def list(self) -> tuple[Key, ...]:
        """The keys by name, with their limits and what they use, without themselves."""
        return read_items(Key, await self._api.json("GET", _KEYS))

    @method
    async def create(
        self, name: str, *, role: Role = "operator", **terms: Unpack[KeyTerms]
    ) -> CreatedKey:
        """Creates a key, which is in force at once; only this answer has the key itself.

        Args:
            name: lower-case letters, digits, `.`, `_` and `-`.
            role: what it may do.
            terms: its bounds; `KeyTerms` describes each.

        Raises: ConflictError if there is such a key, or keys can't be edited here;
        ValidationError naming the member.
        """
        check_terms("key", terms, KeyTerms)
        body = given(**{**terms, "name": name, "role": role})
        if (expiry := terms.get("expires_at")) is not None:
            body["expires_at"] = expiry.isoformat()
        return read(CreatedKey, await self._api.json("POST", _KEYS, body=body))

    @method
    async def rotate(self, name: str, *, overlap: float = 86_400) -> CreatedKey:
        """Gives a key another secret; the old one is valid for another `overlap` seconds.

        Only this answer has the new secret. 0 ends all earlier secrets at once.

        Raises: NotFoundError; ConflictError while an earlier rotation's old secret is valid.
        """
        where = f"{_KEYS}/{segment(name)}/rotation"
        body = {"overlap_seconds": round(overlap)}
        return read(CreatedKey, await self._api.json("POST", where, body=body))

    @method
    async def revoke(self, name: str) -> None:
        """Refuses a key from now on; its sessions continue.

        Raises: NotFoundError, ConflictError.
        """
        await self._api.json("DELETE", f"{_KEYS}/{segment(name)}")
