"""What this node's database knows of the node itself."""

import sqlite3

from orchestrator.ground.store.database import Database


async def identity(database: Database) -> str:
    """The identity of this state directory, random at first. Backups keep it.

    Raises: StoreError.
    """

    def get(connection: sqlite3.Connection) -> str:
        connection.execute(
            "INSERT OR IGNORE INTO node_identity (one, identity)"
            " VALUES (1, lower(hex(randomblob(16))))"
        )
        (found,) = connection.execute("SELECT identity FROM node_identity").fetchone()
        return str(found)

    return await database.write(get, reserve=True)


async def last_message(database: Database) -> int:
    """The highest id that the outbox has ever given. Raises: StoreError."""

    def get(connection: sqlite3.Connection) -> int:
        row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 'outbox'").fetchone()
        return 0 if row is None else int(row[0])

    return await database.read(get)
