"""Migrates new databases by copying one that is migrated already."""

import functools
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

Migrate = Callable[[sqlite3.Connection, Path, Path], None]


def copying(migrate: Migrate, packaged: Path) -> Migrate:
    """Like `migrate`, but the packaged migrations run once, and every new database is a copy."""

    @functools.cache
    def migrated() -> bytes:
        with closing(sqlite3.connect(":memory:", isolation_level=None)) as memory:
            migrate(memory, Path("template"), packaged)
            return memory.serialize()

    def copy_or_migrate(connection: sqlite3.Connection, path: Path, migrations: Path) -> None:
        new = not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        if not new or migrations != packaged:
            migrate(connection, path, migrations)
            return
        with closing(sqlite3.connect(":memory:")) as memory:
            memory.deserialize(migrated())
            memory.backup(connection)

    return copy_or_migrate
