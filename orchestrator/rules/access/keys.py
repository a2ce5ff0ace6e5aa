"""Authentication: API keys, stored as digests only, and session handles.

`key_entries` reads the keys file and `keys_file` edits it.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol
from uuid import uuid4

from orchestrator.ground.errors import UnauthorizedError
from orchestrator.ground.limits import KeyLimits
from orchestrator.rules.access.key_bounds import KeyBounds
from orchestrator.rules.access.key_scopes import Scopes

ADMIN_NAME = "admin"
# In the names of users, and in no key's.
USER_MARK = "@"
NAME_PATTERN = r"[a-z0-9][a-z0-9._-]{0,63}"
_NAME = re.compile(NAME_PATTERN, re.ASCII)
# Of a key, or of a user with the name of an issuer.
_OWNER = re.compile(rf"([a-z0-9_][a-z0-9._+@-]{{0,63}}{USER_MARK})?{NAME_PATTERN}", re.ASCII)
_HANDLE = re.compile(r"H-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
# No key has this name.
_NOBODY = ""
_OF_NOBODY = KeyBounds(images=(), tools=())


class Role(StrEnum):
    """The rights of a credential."""

    ADMIN = "admin"  # everything
    OPERATOR = "operator"  # its own sessions
    VIEWER = "viewer"  # reads one owner's sessions, or all, and changes nothing
    METRICS = "metrics"  # read the metrics
    HANDLE = "handle"  # one session's work


class OldSecret(NamedTuple):
    """The digest of a secret that was rotated, and until when (UTC) it is still valid."""

    sha256: str
    until: datetime


@dataclass(frozen=True, slots=True)
class Principal:
    """The authenticated caller.

    `session_key` is a handle's session. `owner` is the name of the key that owns a handle's
    session, or whose sessions a viewer sees (None: all sessions). The other fields come from the
    key's entry in the keys file; `expires_at` is in UTC. `scopes` None: all that the role may do.
    A handle has the scopes of its session's owner: see `KeyRing.scopes`.
    """

    name: str
    role: Role
    session_key: str | None = None
    owner: str | None = None
    limits: KeyLimits = field(default_factory=KeyLimits)
    bounds: KeyBounds = field(default_factory=KeyBounds)
    expires_at: datetime | None = None
    scopes: Scopes = None
    old: OldSecret | None = None
    # The digest of the key; none for a handle.
    sha256: str = field(default="", compare=False, repr=False)

    @property
    def account(self) -> str:
        """The name of the key that is accountable for the caller."""
        return self.owner or self.name if self.role is Role.HANDLE else self.name

    @property
    def sees_owner(self) -> str | None:
        """The owner whose sessions lists and searches show; None for all."""
        if self.role is Role.ADMIN:
            return None
        if self.role is Role.VIEWER:
            return self.owner
        return self.name if self.role is Role.OPERATOR else _NOBODY

    def may_see(self, session_key: str, owner: str) -> bool:
        """Whether this caller may see the session with that key and owner."""
        if self.role is Role.HANDLE:
            return self.session_key == session_key
        return self.sees_owner in (None, owner)


class Users(Protocol):
    """Whom else a ring of keys knows: users who sign in elsewhere, each with names of their own."""

    def authenticate(self, sha256: str) -> Principal | None:
        """The user whose token has that digest; None for an unknown one, or of one who left."""

    def current(self, sha256: str) -> Principal | None:
        """The user as they are now, by the `sha256` of their principal."""

    def named(self, name: str) -> Principal | None:
        """The user with that name, signed in or not any more."""

    def holds(self, owner: str, since: datetime) -> bool:
        """Whether handles of the owner's sessions that began at `since` are still valid."""

    @property
    def next_expiry(self) -> datetime | None:
        """The time when the next sign-in, or the next handle, expires."""


class KeyRing:
    """The API keys of this instance, stored as digests only, and the users who sign in."""

    def __init__(
        self, principals: dict[str, Principal], admin_key_file: Path | None = None
    ) -> None:
        """`principals` is keyed by sha256; `admin_key_file` is set if the file is in use."""
        self._principals = {
            sha256: replace(known, sha256=sha256) for sha256, known in principals.items()
        }
        self._by_name = {known.name: known for known in self._principals.values()}
        for known in self._by_name.values():
            if known.old is not None:
                self._principals.setdefault(known.old.sha256, _by_old_secret(known, known.old))
        # Keys that were removed since the start. Their sessions continue with the same bounds.
        self._removed: dict[str, Principal] = {}
        self.admin_key_file = admin_key_file
        self._users: Users | None = None
        self._listeners: list[Callable[[], None]] = []
        # Is told of each use of a valid key.
        self.on_use: Callable[[Principal], None] | None = None

    def know(self, users: Users) -> None:
        """From now on, it knows these users besides its keys."""
        self._users = users

    def authenticate(self, secret: str) -> Principal | None:
        """The principal of a key, or of a user's token; None for an unknown one.

        The look-up is by digest, so its timing reveals nothing about a key. Raises:
        UnauthorizedError if the key has expired.
        """
        sha256 = digest(secret)
        principal = self._principals.get(sha256)
        if principal is not None and _expired(principal):
            raise UnauthorizedError("the key has expired: ask the operator for another one")
        if principal is None and self._users is not None:
            principal = self._users.authenticate(sha256)
            if principal is not None and _expired(principal):
                raise UnauthorizedError("the sign-in has expired: sign in again")
        if principal is not None and self.on_use is not None:
            self.on_use(principal)
        return principal

    def current(self, principal: Principal) -> Principal | None:
        """The caller's key as it is now; None if it was removed, replaced or has expired."""
        known = self._principals.get(principal.sha256)
        if known is None and self._users is not None:
            known = self._users.current(principal.sha256)
        return None if known is None or _expired(known) else known

    def named(self, name: str) -> Principal | None:
        """The principal of the key or user with that name, expired or not."""
        known = self._by_name.get(name)
        return self._users.named(name) if known is None and self._users is not None else known

    def holds(self, owner: str, since: datetime) -> bool:
        """Whether the handle of a session that the owner created at `since` is still valid.

        A key's handles outlive it; those of users who have left end. Nobody vouches for users if
        nobody can sign in.
        """
        if USER_MARK not in owner:
            return True
        return self._users is not None and self._users.holds(owner, since)

    @property
    def all(self) -> list[Principal]:
        """The principals of all keys by name, expired ones included."""
        return sorted(self._by_name.values(), key=lambda known: known.name)

    def limits(self, name: str) -> KeyLimits:
        """The limits in the entry of the key with that name, or in its last entry if removed."""
        known = self._entry(name)
        return KeyLimits() if known is None else known.limits

    def quota(self, name: str, defaults: KeyLimits) -> KeyLimits:
        """The limits of that key, over these defaults; an admin key has none."""
        known = self.named(name)
        if known is not None and known.role is Role.ADMIN:
            return KeyLimits()
        return self.limits(name).over(defaults)

    def bounds(self, principal: Principal) -> KeyBounds:
        """The bounds of the caller's sessions: those of its key's entry, or of its last entry.

        A key that was removed before the start is unknown and gets no tools.
        """
        if principal.role is not Role.HANDLE:
            return principal.bounds
        known = self._entry(principal.account)
        return _OF_NOBODY if known is None else known.bounds

    def scopes(self, principal: Principal) -> Scopes:
        """The caller's scopes: a handle has those of the key that owns its session."""
        if principal.role is not Role.HANDLE:
            return principal.scopes
        known = self._entry(principal.account)
        return None if known is None else known.scopes

    def scopes_of(self, name: str) -> Scopes:
        """The scopes of the key with that name, or of its last entry if removed."""
        known = self._entry(name)
        return None if known is None else known.scopes

    def remember(self, name: str, scopes: Scopes) -> None:
        """The handles of a key that was removed before the start have no more than its scopes."""
        if name not in self._by_name:
            self._removed[name] = Principal(name, Role.OPERATOR, bounds=_OF_NOBODY, scopes=scopes)

    def _entry(self, name: str) -> Principal | None:
        return self.named(name) or self._removed.get(name)

    @property
    def next_expiry(self) -> datetime | None:
        """The time when the next key expires."""
        now = datetime.now(UTC)
        moments = [known.expires_at for known in self._principals.values()]
        if self._users is not None:
            moments.append(self._users.next_expiry)
        return min((moment for moment in moments if moment and moment > now), default=None)

    def replace(self, other: "KeyRing") -> None:
        """Replaces all keys with the other's at once and notifies the listeners."""
        known = {**self._removed, **self._by_name}
        self._principals, self._by_name = other._principals, other._by_name
        self._removed = {n: entry for n, entry in known.items() if n not in self._by_name}
        self.announce()

    def announce(self) -> None:
        """Notifies the listeners that keys may have become invalid."""
        for listener in list(self._listeners):
            listener()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` when keys change or expire; returns a function that unsubscribes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def __repr__(self) -> str:
        return f"KeyRing({', '.join(sorted(self._by_name))})"


def _by_old_secret(known: Principal, old: OldSecret) -> Principal:
    """The same key by the secret that it had before."""
    ends = old.until if known.expires_at is None else min(old.until, known.expires_at)
    return replace(known, sha256=old.sha256, expires_at=ends)


def _expired(principal: Principal) -> bool:
    return principal.expires_at is not None and principal.expires_at <= datetime.now(UTC)


def digest(secret: str) -> str:
    """The sha256 of a key or handle in hex, which is what is stored and looked up."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def is_key_name(text: str) -> bool:
    """Whether a key may have that name."""
    return _NAME.fullmatch(text) is not None


def is_owner_name(text: str) -> bool:
    """Whether a key or a user who has signed in may have that name."""
    return _OWNER.fullmatch(text) is not None


def new_handle() -> str:
    """A random bearer token for a session."""
    return f"H-{uuid4()}"


def is_handle(text: str) -> bool:
    """Whether it has the form of a handle."""
    return _HANDLE.fullmatch(text) is not None
