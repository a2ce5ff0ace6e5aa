"""Who may call: API keys, known by their digests only, and session handles."""

import hashlib
import os
import re
import secrets
import stat
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

from orchestrator.config import (
    ConfigError,
    Settings,
    check_secret,
    ensure_state_dir,
    read_toml,
)

ADMIN_NAME = "admin"
ADMIN_KEY_FILE = "admin.key"
_MAX_KEY_FILE_BYTES = 4096
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
    """Who is calling; `session_key` is set for handles only."""

    name: str
    role: Role
    session_key: str | None = None


class KeyRing:
    """The API keys of this instance. It holds digests, never a secret."""

    def __init__(
        self, principals: dict[str, Principal], admin_key_file: Path | None = None
    ) -> None:
        """`principals` by the sha256 of their key; `admin_key_file` when it is in use."""
        self._principals = dict(principals)
        self.admin_key_file = admin_key_file

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
            secret = _admin_key(key_file)
        principals = {digest(secret): Principal(ADMIN_NAME, Role.ADMIN)}
        if settings.keys_file is not None:
            _add_keys(settings.keys_file, principals)
        return cls(principals, key_file)

    def authenticate(self, secret: str) -> Principal | None:
        """Whose key this is, or None.

        The look-up is by digest, so its timing tells nothing about a key.
        """
        return self._principals.get(digest(secret))

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


def _add_keys(path: Path, principals: dict[str, Principal]) -> None:
    table = read_toml(path)
    entries = table.pop("keys", [])
    if table:
        raise ConfigError(f"{path}: {next(iter(table))}: no such field")
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
    for name in entry.keys() ^ _ENTRY_FIELDS:
        raise ValueError(f"{name}: {'no such field' if name in entry else 'is missing'}")
    name, role, key_digest = entry["name"], entry["role"], entry["sha256"]
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError(f"name must match ^{_NAME.pattern}$")
    if role not in (Role.ADMIN, Role.OPERATOR):
        raise ValueError("role must be admin or operator")
    if not isinstance(key_digest, str) or not _SHA256.fullmatch(key_digest):
        raise ValueError("sha256 must be 64 lowercase hex digits")
    return Principal(name, Role(role)), key_digest


def _admin_key(path: Path) -> str:
    """The generated admin key, made when there is none yet."""
    try:
        if not os.path.lexists(path):
            _create_key(path)
        secret = _read_key(path)
        check_secret(secret)
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: {error}") from None
    return secret


def _create_key(path: Path) -> None:
    """Writes a new key beside its place and links it there: it appears whole or not at all."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"pdk_{secrets.token_urlsafe(32)}\n")
            file.flush()
            os.fsync(descriptor)
        try:
            os.link(draft, path)
        except FileExistsError:
            # Somebody else was first: theirs is the key.
            return
    finally:
        os.unlink(draft)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _read_key(path: Path) -> str:
    """The key in the file. Raises: OSError; ValueError when others could have read it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise ValueError("must be a regular file of the user that runs Paddock")
        if facts.st_mode & 0o077:
            raise ValueError("is open to other users: chmod 600 it, or remove it for a new key")
        return file.read(_MAX_KEY_FILE_BYTES).decode("ascii", "replace").strip()
