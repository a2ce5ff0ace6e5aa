"""Keys in files, created when they are first needed, for their owner only: the admin key."""

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.store.directories import sync_names, write_file
from orchestrator.settings.values import check_secret

ADMIN_KEY_FILE = "admin.key"
_MAX_KEY_FILE_BYTES = 4096


def new_key() -> str:
    """A new random API key, with a prefix that secret scanners recognize."""
    return f"pdk_{secrets.token_urlsafe(32)}"


def generated_key(path: Path) -> str:
    """The key in that file; creates it if it is missing. Raises: ConfigError."""
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


def rotate_admin_key(path: Path) -> str:
    """Replaces the file's key atomically and returns it; a watching control plane uses it at once.

    Raises: ConfigError.
    """
    secret = new_key()
    try:
        write_file(path, f"{secret}\n".encode())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    return secret


def _create_key(path: Path) -> None:
    """Writes a new key to a draft and links it into place, so it appears complete or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"{new_key()}\n")
            file.flush()
            os.fsync(descriptor)
        with suppress(FileExistsError):  # another process was first, and its key is used
            os.link(draft, path)
    finally:
        os.unlink(draft)
    sync_names(path.parent)


def _read_key(path: Path) -> str:
    """The key in the file. Raises: OSError; ValueError if other users could have read it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode) or facts.st_uid != os.geteuid():
            raise ValueError("must be a regular file of the user that runs Paddock")
        if facts.st_mode & 0o077:
            raise ValueError("is open to other users: chmod 600 it, or remove it for a new key")
        return file.read(_MAX_KEY_FILE_BYTES).decode("ascii", "replace").strip()
