"""What must be in the record after a kill; each complaint is one line."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from orchestrator.record.audit.verification import verify_all


def examine_record(state_dir: Path, acknowledged: set[str]) -> Iterator[str]:
    """Whether every chain is whole, and has every event of which a client has heard."""
    uri = f"file:{state_dir / 'paddock.db'}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        for key, verdict in verify_all(connection):
            if not verdict.ok:
                yield f"chain {key}: event {verdict.index}: {verdict.reason}"
        kept = {text for (text,) in connection.execute("SELECT hash FROM events")}
        if lost := acknowledged - kept:
            yield f"{len(lost)} acknowledged events are not on record"
        # A number that was used twice would hide another event.
        twice = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM events WHERE agent_seq IS NOT NULL"
            " GROUP BY session_key, agent_boot_id, agent_seq HAVING count(*) > 1)"
        ).fetchone()
        if twice[0]:
            yield f"{twice[0]} events of agents are on record twice"
        yield from _ends(connection)
        yield from _misses(connection)
        yield from _commits(connection)
        yield from _turns(connection)


def _ends(connection: sqlite3.Connection) -> Iterator[str]:
    """Whether every command and terminal of an ended session has an end, or a gap names it."""
    for what, begin, end in (("command", "command.start", "command.exit"),):
        unended = connection.execute(
            "SELECT events.session_id, events.command_id FROM events"
            " JOIN sessions ON sessions.key = events.session_key"
            " WHERE events.operation = ? AND events.decision = 'allow'"
            " AND sessions.status NOT IN ('active', 'paused') AND sessions.acknowledged"
            " AND NOT EXISTS (SELECT 1 FROM events AS ends WHERE ends.operation = ?"
            " AND ends.session_key = events.session_key AND ends.command_id = events.command_id)"
            " AND NOT EXISTS (SELECT 1 FROM events AS gaps WHERE gaps.operation = 'audit.gap'"
            " AND gaps.session_key = events.session_key"
            " AND instr(gaps.body, events.command_id))",
            (begin, end),
        ).fetchall()
        for session, command in unended:
            yield f"{session}: {what} {command} has neither an end nor a gap"
    open_terminals = connection.execute(
        "SELECT count(*) FROM terminals WHERE ended_at IS NULL"
    ).fetchone()[0]
    if open_terminals:
        yield f"{open_terminals} terminals have no end"


def _misses(connection: sqlite3.Connection) -> Iterator[str]:
    """Whether each session that missed something has ended because of it, on record in order."""
    operations = ("read", "session.terminated", "coordination.context_refinement_request")
    missed = connection.execute(
        "SELECT DISTINCT sessions.key, sessions.id, termination FROM events"
        " JOIN sessions ON sessions.key = events.session_key"
        " WHERE operation = 'read' AND decision = 'deny'"
    ).fetchall()
    for key, session, termination in missed:
        first = [
            connection.execute(
                "SELECT min(seq), count(*) FROM events WHERE session_key = ? AND operation = ?",
                (key, operation),
            ).fetchone()
            for operation in operations
        ]
        in_order = None not in first and first == sorted(first)
        if "CONTEXT_MISS" not in (termination or "") or not in_order:
            yield f"{session}: its miss has not ended it, or is not on record in order: {first}"
        if any(count != 1 for _, count in first):
            yield f"{session}: its miss is on record more than once, or not: {first}"


def _commits(connection: sqlite3.Connection) -> Iterator[str]:
    """Whether each commit of a live session has one end, which is on record after it."""
    rows = connection.execute(
        "SELECT sessions.id, operation FROM events"
        " JOIN sessions ON sessions.key = events.session_key"
        " WHERE operation IN ('proposal.commit', 'proposal.end')"
        " AND sessions.status IN ('active', 'paused') ORDER BY events.id"
    ).fetchall()
    found: dict[str, list[str]] = {}
    for session, operation in rows:
        found.setdefault(session, []).append(operation)
    for session, operations in found.items():
        if operations != ["proposal.commit", "proposal.end"] * (len(operations) // 2):
            yield f"{session}: its commits and their ends are {operations}"


def _turns(connection: sqlite3.Connection) -> Iterator[str]:
    """Whether turns are numbered from 1, have one start and one end, and their operations."""
    rows = connection.execute(
        "SELECT sessions.id, key, number, ended_at, json_extract(result, '$.operations'),"
        " json_extract(result, '$.outcome.tag') FROM turns"
        " JOIN sessions ON sessions.key = session_key ORDER BY key, number"
    ).fetchall()
    last: dict[str, int] = {}
    for session, key, number, ended_at, operations, tag in rows:
        if number != last.get(key, 0) + 1:
            yield f"{session}: turn {number} follows turn {last.get(key, 0)}"
        last[key] = number
        events = connection.execute(
            "SELECT operation, json_extract(body, '$.result.tag') FROM events"
            " WHERE session_key = ? AND turn = ? AND (operation IN ('turn.start', 'turn.end')"
            " OR operation LIKE 'world.%' OR operation = 'assert') ORDER BY seq",
            (key, number),
        ).fetchall()
        names = [name for name, _ in events]
        ends = [end for name, end in events if name == "turn.end"]
        if ended_at is None or names[:1] != ["turn.start"] or names[-1:] != ["turn.end"]:
            yield f"{session}: turn {number} has no start or no end: {names}"
        if ends != [tag] or names.count("turn.start") != 1:
            yield f"{session}: turn {number} ended as {tag}, on record are {ends}"
        if len(names) - 2 != operations:
            yield f"{session}: turn {number} had {operations} operations, on record are {names}"
