"""The tables of the cluster's database: made and changed by numbered migrations.

A migration adds, so that programs of the version before go on working with it. Its first line says
the lowest schema that a program must know: `-- programs: 1`.
"""

import re
from pathlib import Path
from typing import NamedTuple

import asyncpg

from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.ground.config_error import ConfigError

NAME = "paddock"
_MIGRATIONS = Path(__file__).with_name("migrations")
_FILE = re.compile(r"([0-9]{4})_[a-z0-9_]+\.sql")
_PROGRAMS = re.compile(r"-- programs: ([0-9]+)\n")
# Of the lock that one migrating program holds; any number that nobody else uses.
_LOCK = 0x70616464
# Large tables, and programs that migrate at the same time.
_MIGRATION_SECONDS = 600.0
_VERSIONS = f"""
CREATE SCHEMA IF NOT EXISTS {NAME};
CREATE TABLE IF NOT EXISTS migrations (
    version int PRIMARY KEY,
    programs int NOT NULL,
    applied timestamptz NOT NULL DEFAULT now()
)
"""


class MisfitError(ConfigError):
    """A database that this program can't use; the message begins with the verb."""


class Migration(NamedTuple):
    """One step. `programs`: programs must know at least that version to use the tables after it."""

    version: int
    programs: int
    sql: str


class State(NamedTuple):
    """What a database has: the last migration, the lowest that programs must know, its cluster."""

    version: int
    programs: int
    cluster: str


def migrations(directory: Path = _MIGRATIONS) -> list[Migration]:
    """Ours, in their order. Raises: ConfigError if a file is not one."""
    found = []
    for path in sorted(directory.glob("*.sql")):
        name, text = _FILE.fullmatch(path.name), path.read_text(encoding="utf-8")
        programs = _PROGRAMS.match(text)
        if name is None or programs is None:
            raise ConfigError(f"{path}: is no migration")
        found.append(Migration(int(name[1]), int(programs[1]), text))
    return found


async def state(connection: DatabaseConnection) -> State | None:
    """What the database has; None: it has no tables of ours. Raises: errors of the driver."""
    try:
        row = await connection.fetchrow(
            "SELECT (SELECT max(version) FROM migrations) AS version,"
            " (SELECT max(programs) FROM migrations) AS programs, (SELECT name FROM cluster)"
        )
    except asyncpg.UndefinedTableError:
        return None
    if row is None or row["version"] is None:
        return None
    return State(row["version"], row["programs"], row["name"])


async def check(connection: DatabaseConnection, cluster: str) -> None:
    """Raises: MisfitError unless these are that cluster's tables, and fit this program."""
    problem = misfit(await state(connection), cluster, migrations()[-1].version)
    if problem is not None:
        raise MisfitError(problem)


def misfit(found: State | None, cluster: str, ours: int) -> str | None:
    """Why this program, which knows the schema `ours`, can't use the database. Pure."""
    if found is None:
        return "has no tables of a cluster: run `paddock cluster init`"
    if found.cluster != cluster:
        return (
            f"is the one of the cluster {found.cluster!r}, not of {cluster!r}: mend PADDOCK_CLUSTER"
            " or PADDOCK_CLUSTER_DATABASE"
        )
    if found.version < ours:
        return (
            f"has schema {found.version}, and this program needs {ours}: run"
            " `paddock cluster migrate`"
        )
    if found.programs > ours:
        return (
            f"has schema {found.version}, for programs that know {found.programs}, and this one"
            f" knows {ours}: install the version that the cluster's other machines have"
        )
    return None


async def migrate(connection: DatabaseConnection, cluster: str, *, new: bool = False) -> list[int]:
    """Makes the tables current, all or nothing; returns the migrations that were applied.

    `new`: makes them if there are none. Programs that migrate at the same time wait for each other.

    Raises: ConfigError if it is another cluster's, or newer; errors of the driver.
    """
    ours = migrations()
    async with connection.transaction():
        limit = f"SET LOCAL statement_timeout = {round(_MIGRATION_SECONDS * 1000)}"
        await connection.execute(f"{limit}; {limit.replace('statement', 'lock')}")
        await connection.execute(
            f"SELECT pg_advisory_xact_lock({_LOCK})", timeout=_MIGRATION_SECONDS
        )
        if new:
            await connection.execute(_VERSIONS)
        known = await _state_of(connection, new=new)
        if known is not None:
            # What is too old is mended here.
            problem = misfit(known, cluster, min(known.version, ours[-1].version))
            if problem is not None:
                raise ConfigError(f"the cluster's database {problem}")
        done = 0 if known is None else known.version
        for each in (each for each in ours if each.version > done):
            await connection.execute(each.sql, timeout=_MIGRATION_SECONDS)
            await connection.execute(
                "INSERT INTO migrations (version, programs) VALUES ($1, $2)",
                each.version,
                each.programs,
            )
        if known is None:
            await connection.execute("INSERT INTO cluster (name) VALUES ($1)", cluster)
        return [each.version for each in ours if each.version > done]


async def _state_of(connection: DatabaseConnection, *, new: bool) -> State | None:
    """As `state`, within a transaction, which an error would end."""
    exists = await connection.fetchval("SELECT to_regclass($1)", f"{NAME}.cluster")
    if exists is None:
        if not new:
            raise ConfigError(
                "the cluster's database has no tables of a cluster: run `paddock cluster init`"
            )
        return None
    return await state(connection)
