"""What a machine had alone, as its files have it: keys, and their secrets, hooks and memory."""

import sqlite3
from contextlib import closing
from typing import NamedTuple

from orchestrator.ground.open import DATABASE_FILE
from orchestrator.ground.store.database_file import connect
from orchestrator.operate.hooks import hook_rows
from orchestrator.operate.hooks.hook import Hook
from orchestrator.rules.access.keys import ADMIN_NAME, Principal
from orchestrator.rules.access.keys_file import read_keys
from orchestrator.settings.settings import Settings
from orchestrator.state import secret_rows
from orchestrator.state.secret import Secret
from orchestrator.work.memory import memory_rows
from orchestrator.work.memory.entries import MemoryEntry


class Belongings(NamedTuple):
    """`keys` are by digest. Secrets and hooks are with their sealed values."""

    keys: dict[str, Principal]
    secrets: list[tuple[Secret, bytes]]
    hooks: list[tuple[Hook, bytes]]
    memory: list[MemoryEntry]


def of_machine(settings: Settings) -> Belongings:
    """All of it; the control plane may be running. Raises: ConfigError, StoreError."""
    keys = read_keys(settings.keys_path)
    path = settings.state_dir / DATABASE_FILE
    if not path.exists():
        return Belongings(keys, [], [], [])
    with closing(connect(path, read_only=True)) as connection:
        return Belongings(
            keys,
            _secrets(connection),
            hook_rows.stored(connection),
            memory_rows.all_entries(connection),
        )


def owner_of_hook(hook: Hook) -> str:
    """The key that a hook belongs to; an admin's is the admin's."""
    return hook.managed_by or hook.key or ADMIN_NAME


def owner_of_secret(secret: Secret) -> str:
    """The key that a secret belongs to; one of all keys is the admin's."""
    return secret.holder.key or ADMIN_NAME


def _secrets(connection: sqlite3.Connection) -> list[tuple[Secret, bytes]]:
    """Those of sessions stay with their sessions."""
    return [each for each in secret_rows.stored(connection) if not each[0].holder.session_key]
