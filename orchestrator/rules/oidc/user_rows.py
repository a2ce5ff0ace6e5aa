"""What is kept of users: what their newest token says, and since when nothing older is valid."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta

from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, executing
from orchestrator.rules.access.key_entries import parse_key, table
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.access.users import MOST_USERS, SignedIn, SignedInUsers

_OF_TOKEN = ("name", "sha256", "expires_at")


async def load(database: Database, users: SignedInUsers) -> None:
    """Gives what was stored. Raises: StoreError."""
    found, left = await database.read(_stored)
    for user in found:
        users.restore(user)
    for name, moment in left:
        users.leave(name, moment)


def storing(user: SignedIn) -> Effect:
    """An effect that stores the user, and forgets the oldest above the bound."""
    entry = table(user.principal, "")
    members = {name: value for name, value in entry.items() if name not in _OF_TOKEN}
    values = (
        user.principal.name,
        json.dumps(members),
        user.issued_at.isoformat(),
        user.until.timestamp(),
        user.holds.total_seconds(),
    )

    def apply(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT OR REPLACE INTO signed_in_users VALUES (?, ?, ?, ?, ?)", values)
        connection.execute(
            "DELETE FROM signed_in_users WHERE name IN"
            " (SELECT name FROM signed_in_users ORDER BY until DESC LIMIT -1 OFFSET ?)",
            (MOST_USERS,),
        )

    return apply


def leaving(name: str, moment: datetime) -> Effect:
    """An effect that stores since when nothing older is valid."""
    return executing(
        "INSERT INTO users_left VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET moment = max(moment, excluded.moment)",
        (name, moment.timestamp()),
    )


def _stored(
    connection: sqlite3.Connection,
) -> tuple[list[SignedIn], list[tuple[str, datetime]]]:
    rows = connection.execute(
        "SELECT name, entry, issued_at, until, holds FROM signed_in_users ORDER BY until"
    )
    users = [_user(*row) for row in rows]
    left = connection.execute("SELECT name, moment FROM users_left")
    return users, [(name, datetime.fromtimestamp(moment, UTC)) for name, moment in left]


def _user(name: str, entry: str, issued_at: str, until: float, holds: float) -> SignedIn:
    found = parse_key({**json.loads(entry), "name": "user"})
    principal = Principal(
        name, found.role, owner=found.owner, limits=found.limits, bounds=found.bounds
    )
    return SignedIn(
        principal,
        datetime.fromisoformat(issued_at),
        datetime.fromtimestamp(until, UTC),
        timedelta(seconds=holds),
    )
