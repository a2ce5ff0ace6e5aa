"""Who may call: API keys, known by their digests only, and session handles.

`keys_file` edits the file that this module reads.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any
from uuid import uuid4

from orchestrator.admin_key import ADMIN_KEY_FILE, admin_key
from orchestrator.config import ConfigError, Settings, ensure_state_dir, read_toml
from orchestrator.limits import LIMIT_FIELDS, KeyLimits, parse_limits

ADMIN_NAME = "admin"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_HANDLE = re.compile(r"H-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
_ENTRY_FIELDS = frozenset({"name", "role", "sha256"})


class Role(StrEnum):
    """What a credential may do: everything, its own sessions, or one session's work."""

    ADMIN = "admin"
    OPERATOR = "operator"
    HANDLE = "handle"


@dataclass(frozen=True, slots=True)
class Principal:
    """Who is calling; `session_key` and `owner`, its session's, are set for handles only."""

    name: str
    role: Role
    session_key: str | None = None
    owner: str | None = None
    # What a key may use, where its entry says so.
    limits: KeyLimits = field(default_factory=KeyLimits)

    @property
    def account(self) -> str:
        """The name of the key on whose account this is."""
        return self.owner or self.name


class KeyRing:
    """The API keys of this instance. It holds digests, never a secret."""

    def __init__(
        self, principals: dict[str, Principal], admin_key_file: Path | None = None
    ) -> None:
        """`principals` by the sha256 of their key; `admin_key_file` when it is in use."""
        self._principals = dict(principals)
        self.admin_key_file = admin_key_file
        self._listeners: list[Callable[[], None]] = []

    @classmethod
    def load(cls, settings: Settings) -> "KeyRing":
        """The admin key (configured, or made on first start) and those of the keys file.

        Raises: ConfigError naming the file and the entry.
        """
        key_file = None
        if settings.admin_key is not None:
            secret = settings.admin_key.get_secret_value()
        else:
            ensure_state_dir(settings.state_dir)
            key_file = settings.state_dir / ADMIN_KEY_FILE
            secret = admin_key(key_file)
        principals = {digest(secret): Principal(ADMIN_NAME, Role.ADMIN)}
        # The default file need not exist; one that was named must.
        if settings.keys_file is not None or settings.keys_path.exists():
            add_entries(settings.keys_path, read_toml(settings.keys_path), principals)
        return cls(principals, key_file)

    def authenticate(self, secret: str) -> Principal | None:
        """Whose key this is, or None.

        The look-up is by digest, so its timing tells nothing about a key.
        """
        return self._principals.get(digest(secret))

    def limits(self, name: str) -> KeyLimits:
        """What the key of that name may use, as far as its entry says so."""
        named = (known.limits for known in self._principals.values() if known.name == name)
        return next(named, KeyLimits())

    def replace(self, other: "KeyRing") -> None:
        """Takes over the other's keys at once, and tells who listens."""
        self._principals = other._principals
        for listener in list(self._listeners):
            listener()

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` whenever the keys have changed; returns what ends that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def __repr__(self) -> str:
        names = sorted(principal.name for principal in self._principals.values())
        return f"KeyRing({', '.join(names)})"


def digest(secret: str) -> str:
    """The sha256 of a key or handle, in hex: what is stored and looked up."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def new_handle() -> str:
    """A session's own bearer token: random, with no meaning in it."""
    return f"H-{uuid4()}"


def is_handle(text: str) -> bool:
    """Whether this has the form of a handle."""
    return _HANDLE.fullmatch(text) is not None


def add_entries(path: Path, table: dict[str, Any], principals: dict[str, Principal]) -> None:
    """Adds the keys of a keys file's table to `principals`, which are by digest.

    Raises: ConfigError naming the file and the entry.
    """
    entries = table.get("keys", [])
    for name in table.keys() - {"keys"}:
        raise ConfigError(f"{path}: {name}: no such field")
    if not isinstance(entries, list):
        raise ConfigError(f"{path}: keys must be an array of tables, [[keys]]")
    for number, entry in enumerate(entries, 1):
        try:
            _add_key(entry, principals)
        except ValueError as error:
            raise ConfigError(f"{path}: keys entry {number}: {error}") from None


def _add_key(entry: object, principals: dict[str, Principal]) -> None:
    principal, key_digest = _parse_entry(entry)
    if any(principal.name == known.name for known in principals.values()):
        raise ValueError(f"name {principal.name!r} is taken")
    if key_digest in principals:
        raise ValueError("sha256 is that of another key")
    principals[key_digest] = principal


def _parse_entry(entry: object) -> tuple[Principal, str]:
    if not isinstance(entry, dict):
        raise ValueError("must be a table")
    limits = {name: entry[name] for name in LIMIT_FIELDS if name in entry}
    for name in (entry.keys() - limits.keys()) ^ _ENTRY_FIELDS:
        raise ValueError(f"{name}: {'no such field' if name in entry else 'is missing'}")
    name, role, key_digest = entry["name"], entry["role"], entry["sha256"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name must match ^{_NAME.pattern}$")
    if role not in (Role.ADMIN, Role.OPERATOR):
        raise ValueError("role must be admin or operator")
    if not isinstance(key_digest, str) or not _SHA256.fullmatch(key_digest):
        raise ValueError("sha256 must be 64 lowercase hex digits")
    return Principal(name, Role(role), limits=parse_limits(limits)), key_digest
