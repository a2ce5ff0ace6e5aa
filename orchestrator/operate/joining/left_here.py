"""Says at a start what a machine had alone and its cluster does not have."""

import logging
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from orchestrator.cluster.shared import Connection, SharedDatabase
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.store.database import Database
from orchestrator.rules.access.keys_file import read_keys

log = logging.getLogger(__name__)


class LeftHere(NamedTuple):
    """How many are not in the cluster."""

    keys: int
    secrets: int
    hooks: int
    memory: int


class _Here(NamedTuple):
    """By what each is known."""

    keys: list[str]
    secrets: list[tuple[str, str]]
    hooks: list[str]
    memory: list[str]


async def say_what_is_left(keys_file: Path, own: Database, database: SharedDatabase) -> None:
    """One line, if there is something; none while the cluster's database is away.

    Raises: ConfigError, StoreError.
    """
    keys = list(read_keys(keys_file))
    here = await own.read(lambda connection: _here(connection, keys))
    if not any(here):
        return
    with suppress(ClusterUnavailableError):
        left = await database.transaction(lambda connection: _left(connection, here))
        if any(left):
            log.warning(
                "of what this machine had before it was a node, %d keys, %d secrets, %d hooks and "
                "%d entries of the memory are not in the cluster: see `paddock cluster import`",
                *left,
            )


def _here(connection: sqlite3.Connection, keys: list[str]) -> _Here:
    secrets = "SELECT key, name FROM secrets WHERE session_key = ''"
    return _Here(
        keys,
        connection.execute(secrets).fetchall(),
        [name for (name,) in connection.execute("SELECT id FROM hooks")],
        [name for (name,) in connection.execute("SELECT id FROM memory")],
    )


async def _left(connection: Connection, here: _Here) -> LeftHere:
    there = await connection.fetch("SELECT key, name FROM secrets")
    return LeftHere(
        await _missing(connection, "keys", "sha256", here.keys),
        len(set(here.secrets) - {(row["key"], row["name"]) for row in there}),
        await _missing(connection, "hooks", "id", here.hooks),
        await _missing(connection, "memory", "id", here.memory),
    )


async def _missing(connection: Connection, table: str, column: str, ids: list[str]) -> int:
    statement = f"SELECT count(*) FROM {table} WHERE {column} = ANY($1)"  # noqa: S608 - ours
    return len(ids) - int(await connection.fetchval(statement, ids))
