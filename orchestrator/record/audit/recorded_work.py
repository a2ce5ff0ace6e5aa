"""Commands and cells of code as the audit ledger has them: an earlier process ran them."""

import json
import sqlite3
from collections.abc import Iterable

from orchestrator.ground.store.database import Database
from orchestrator.record.audit.query import RARE
from orchestrator.record.audit.recorded_event import full_event
from paddock.audit.chain import Event

# Commands that may have run, by their starts. Ids have the order of `seq` in one chain.
_STARTED = """
    SELECT command_id FROM events AS started INDEXED BY events_started
    WHERE session_key = :key AND operation = 'command.start' AND decision IS NOT 'deny'
        AND command_id IS NOT NULL
"""
_NEWEST = " ORDER BY id DESC LIMIT :most"
_WITHOUT_END = """
    AND NOT EXISTS (
        SELECT 1 FROM events INDEXED BY events_command
        WHERE session_key = :key AND command_id = started.command_id
            AND operation = 'command.exit'
    )
"""
# How many have no end on record: it is counted with each event.
_OPEN = """
    SELECT coalesce(sum(iif(operation = 'command.start', events, -events)), 0) FROM event_counts
    WHERE session_key = :key
        AND (operation = 'command.exit' OR operation = 'command.start' AND decision <> 'deny')
"""
_OF_COMMANDS = """
    SELECT body, prev_hash, hash FROM events INDEXED BY events_command
    WHERE session_key = :key AND operation IN ('command.start', 'command.exit')
        AND command_id IN (SELECT value FROM json_each(:commands))
    ORDER BY seq
"""
# The cells of a context are executed one after the other.
_UNFINISHED_CELLS = f"""
    SELECT body, prev_hash, hash FROM events
    WHERE session_key = :key AND operation = 'code.start' AND seq IN (
        SELECT max(seq) FROM events INDEXED BY events_rare
        WHERE session_key = :key AND operation IN ('code.start', 'code.exit') AND {RARE}
            AND decision IS NOT 'deny'
        GROUP BY command_id
    )
    ORDER BY seq
"""  # noqa: S608 - ours


async def latest_commands(database: Database, session_key: str, limit: int) -> list[Event]:
    """The starts and ends of the latest allowed commands, including all unfinished ones.

    They are in the order of the chain. Only where there are unfinished ones before the latest, the
    whole chain's starts are looked at.
    """

    def read(connection: sqlite3.Connection) -> list[Event]:
        values = {"key": session_key, "most": limit}
        wanted = {each for (each,) in connection.execute(_STARTED + _NEWEST, values)}
        (unfinished,) = connection.execute(_OPEN, values).fetchone()
        found = _of_commands(connection, session_key, wanted)
        if unfinished > len(wanted) - sum(each["operation"] == "command.exit" for each in found):
            wanted |= {each for (each,) in connection.execute(_STARTED + _WITHOUT_END, values)}
            found = _of_commands(connection, session_key, wanted)
        return found

    return await database.browse(read)


def _of_commands(
    connection: sqlite3.Connection, session_key: str, commands: Iterable[str]
) -> list[Event]:
    values = {"key": session_key, "commands": json.dumps(sorted(commands))}
    rows = connection.execute(_OF_COMMANDS, values).fetchall()
    return [full_event(*row) for row in rows]


async def unfinished_cells(database: Database, session_key: str) -> list[Event]:
    """The starts of cells of code whose ends are not on record."""

    def read(connection: sqlite3.Connection) -> list[Event]:
        rows = connection.execute(_UNFINISHED_CELLS, {"key": session_key}).fetchall()
        return [full_event(*row) for row in rows]

    return await database.browse(read)
