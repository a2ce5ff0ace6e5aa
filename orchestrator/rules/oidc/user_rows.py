"""What is kept of users: what their newest token says, and since when nothing older is valid."""

import json
import sqlite3
from datetime import UTC, datetime, timedelta

from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect
from orchestrator.rules.access.key_entries import parse_key, table
from orchestrator.rules.access.keys import Principal
from orchestrator.rules.access.user_ends import LONGEST_TOKEN, UserEnd, UserEndKind
from orchestrator.rules.access.users import MOST_USERS, SignedIn, SignedInUsers

_OF_TOKEN = ("name", "sha256", "expires_at")
_TABLES = {UserEndKind.LEFT: "users_left", UserEndKind.SIGNED_OUT: "users_signed_out"}


async def load(database: Database, users: SignedInUsers) -> None:
    """Gives what was stored. Raises: StoreError."""
    found, left = await database.read(_stored)
    for user in found:
        users.restore(user)
    for end in left:
        users.leave(end)


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


def leaving(end: UserEnd) -> Effect:
    """An effect that stores since when nothing older is valid."""
    name, what, moment = end
    table = _TABLES[what]

    def apply(connection: sqlite3.Connection) -> None:
        connection.execute(
            f"INSERT INTO {table} VALUES (?, ?)"  # noqa: S608
            " ON CONFLICT (name) DO UPDATE SET moment = max(moment, excluded.moment)",
            (name, moment.timestamp()),
        )
        # They concern no token any more.
        oldest = (moment - LONGEST_TOKEN - timedelta(days=1)).timestamp()
        connection.execute("DELETE FROM users_signed_out WHERE moment < ?", (oldest,))

    return apply


def _stored(
    connection: sqlite3.Connection,
) -> tuple[list[SignedIn], list[UserEnd]]:
    rows = connection.execute(
        "SELECT name, entry, issued_at, until, holds FROM signed_in_users ORDER BY until"
    )
    users = [_user(*row) for row in rows]
    left = [
        UserEnd(name, what, datetime.fromtimestamp(moment, UTC))
        for what, table_name in _TABLES.items()
        for name, moment in connection.execute(f"SELECT name, moment FROM {table_name}")  # noqa: S608
    ]
    return users, left


def _user(name: str, entry: str, issued_at: str, until: float, holds: float) -> SignedIn:
    found = parse_key({**json.loads(entry), "name": "user"})
    principal = Principal(
        name,
        found.role,
        owner=found.owner,
        limits=found.limits,
        bounds=found.bounds,
        scopes=found.scopes,
    )
    return SignedIn(
        principal,
        datetime.fromisoformat(issued_at),
        datetime.fromtimestamp(until, UTC),
        timedelta(seconds=holds),
    )
