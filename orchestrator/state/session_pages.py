"""Pages of lists of sessions: found, filtered and sorted by the database."""

import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

from orchestrator.ground.store.effect import Effect, executing
from orchestrator.state.lifecycle import LIVE

# A session's place in every list: when it was created, and its key.
Position = tuple[str, str]

# Rows that one look examines: about ten milliseconds with the filters that read a row's terms.
MOST_EXAMINED = 1000
_LIVE = "status IN ('active', 'paused')"


@dataclass(frozen=True, slots=True)
class WantedSessions:
    """Which sessions a list has; filters that are None are off.

    `status` is a status, `live` or `ended`; None: live sessions, and those that ended after
    `ended_after`. `parent_key` is the session whose children they are; None: they are nobody's.
    With `keys`, only sessions with these are looked at.
    """

    owner: str | None
    ended_after: str
    status: str | None = None
    label: tuple[str, str] | None = None
    metadata: Sequence[tuple[str, str]] = ()
    work_id: str | None = None
    parent_key: str | None = None
    oldest_first: bool = False
    keys: Sequence[str] | None = None

    def fits(self, status: str) -> bool:
        """Whether a session with that status is wanted, as far as its status goes."""
        if self.status in ("live", "ended"):
            return (status in LIVE) == (self.status == "live")
        return self.status in (None, status)


class FoundKeys(NamedTuple):
    """Keys of sessions that were found, and where to go on; None: there are no more."""

    keys: list[str]
    next: Position | None


def find_keys(
    connection: sqlite3.Connection, wanted: WantedSessions, after: Position | None, most: int
) -> FoundKeys:
    """Up to `most` of the wanted sessions that follow that position in the list.

    It examines no more than `MOST_EXAMINED` rows, so it may find fewer although there are more.
    """
    rows, conditions, values = _parts(wanted)
    order = "ASC" if wanted.oldest_first else "DESC"
    if after is not None:
        rows += f" AND (created_at, key) {'>' if wanted.oldest_first else '<'} (:time, :key)"
        values |= {"time": after[0], "key": after[1]}
    statement = (
        f"SELECT created_at, key, {' AND '.join(conditions)} FROM sessions {rows}"  # noqa: S608
        f" ORDER BY created_at {order}, key {order}"
    )
    keys: list[str] = []
    last = after
    # Rows are read one by one: those behind the page are never looked at.
    with closing(connection.execute(statement, values)) as found:
        for number, (created_at, key, is_wanted) in enumerate(found):
            if len(keys) == most or number == MOST_EXAMINED:
                return FoundKeys(keys, last)
            last = created_at, key
            if is_wanted:
                keys.append(key)
    return FoundKeys(keys, None)


def _parts(wanted: WantedSessions) -> tuple[str, list[str], dict[str, object]]:
    """The rows to examine, which an index has in their order; what must hold; the values."""
    owned = "" if wanted.owner is None else " AND owner = :owner"
    of_owner = "" if wanted.owner is None else "_of_owner"
    is_live = wanted.status in ("active", "paused", "live")
    conditions = ["acknowledged = 1"]
    if wanted.keys is not None:
        some = "SELECT value FROM json_each(:keys)"
        rows = f"WHERE key IN ({some}) AND parent_key IS :parent{owned}"
        conditions += [_LIVE] if is_live else []
    elif wanted.parent_key is not None:
        rows = f"INDEXED BY sessions_of_parent WHERE parent_key = :parent{owned}"
        conditions += [_LIVE] if is_live else []
    elif is_live:
        rows = f"INDEXED BY sessions_live{of_owner} WHERE {_LIVE} AND parent_key IS NULL{owned}"
    elif wanted.status is None:
        rows = f"INDEXED BY sessions_shown{of_owner} WHERE forgotten = 0 AND parent_key IS NULL"
        rows += owned
    else:
        index = "sessions_created" if wanted.owner is None else "sessions_owner"
        rows = f"INDEXED BY {index} WHERE parent_key IS NULL{owned}"
    match wanted.status:
        case None:
            conditions.append("(terminated_at IS NULL OR terminated_at > :ended_after)")
        case "live":
            pass
        case "ended":
            conditions.append(f"NOT {_LIVE}")
        case _:
            conditions.append("status = :status")
    if wanted.work_id is not None:
        conditions.append("work_id = :work_id")
    values: dict[str, object] = {
        "owner": wanted.owner,
        "parent": wanted.parent_key,
        "ended_after": wanted.ended_after,
        "status": wanted.status,
        "work_id": wanted.work_id,
        "keys": None if wanted.keys is None else json.dumps(wanted.keys),
    }
    named = [("$.metadata", *pair) for pair in wanted.metadata]
    if wanted.label is not None:
        named.append(("$.labels", *wanted.label))
    for number, (place, name, text) in enumerate(named):
        has = f"each.key = :name_{number} AND each.value = :text_{number}"
        each = f"json_each(terms, :place_{number}) AS each"
        conditions.append(f"EXISTS (SELECT 1 FROM {each} WHERE {has})")  # noqa: S608 - numbers
        values |= {f"place_{number}": place, f"name_{number}": name, f"text_{number}": text}
    return rows, conditions, values


def forgetting(ended_before: str) -> Effect:
    """An effect that takes what ended until then from the list of the sessions that are shown."""
    return executing(
        "UPDATE sessions SET forgotten = 1 WHERE forgotten = 0 AND terminated_at IS NOT NULL"
        " AND terminated_at <= ?",
        (ended_before,),
    )
