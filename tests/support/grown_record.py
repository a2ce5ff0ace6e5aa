"""A ledger with any number of events of ended sessions, made in bulk.

Chains are whole, and rows are those of sessions at one level that ran commands, one after another.
"""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from orchestrator.ground.events import EventDraft, members, time_text
from orchestrator.ground.open import DATABASE_FILE
from orchestrator.ground.store.database_file import migrate_file
from orchestrator.record.audit.writer import ROW_BYTES, last_id
from orchestrator.record.search_index.feed import feed
from orchestrator.record.search_index.index_file import open_index
from orchestrator.rules.policy.levels import Level, load_levels
from orchestrator.settings.settings import ensure_state_dir
from orchestrator.state.lifecycle import Termination
from orchestrator.state.terms import Terms
from paddock.audit.chain import GENESIS_HASH, canonical, chain_hash
from paddock.contract.words import Rationale

OWNERS = ("admin", "ci", "ops")
# A text that one event of so many has.
NEEDLE, NEEDLE_EVERY = "needle", 5000
# One command of so many is refused.
_REFUSED_EVERY = 50
# All of them ended before anything that a test does.
_BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_EVENTS = """
    INSERT INTO events (id, session_key, session_id, seq, time, operation, decision, command_id,
                        agent_boot_id, agent_seq, body, prev_hash, hash)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_SESSION = """
    INSERT INTO sessions (key, id, owner, status, permission_level, level, terms, acknowledged,
                          forgotten, audit_bytes, created_at, terminated_at, termination, sandbox)
    VALUES (?, ?, ?, 'completed', ?, ?, ?, 1, 1, ?, ?, ?, ?, ?)
"""
_CREATE = {"operation": "session.create", "decision": "allow"}
_START = {"operation": "command.start", "decision": "allow"}
_REFUSAL = {"operation": "command.start", "decision": "deny", "rule": "command-not-allowed"}
_EXIT = {"operation": "command.exit", "source": "agent", "result": {"exit_code": 0}}
_CLOSE = {"operation": "session.close", "decision": "allow"}
_WORDS = "error: the module 'compute' has no attribute 'flatten'; "


class _Kind(NamedTuple):
    """Events that differ only in the values of a template."""

    operation: str
    decision: str | None
    by_agent: bool
    template: str

    @classmethod
    def of(cls, **draft: Any) -> "_Kind":
        args = {"command_id": "%(command)s", "argv": ["grep", "-c", "%(word)s", _WORDS * 2]}
        event = members(
            EventDraft(
                **draft,
                actor="admin",
                incarnation=1,
                permission_level="low",
                workspace_root="/workspace",
            )
        )
        by_agent = event["source"] == "agent"
        holes = {"id": "%(id)d", "seq": "%(seq)d", "session_id": "%(session)s", "time": "%(time)s"}
        agent = {"boot_id": "boot", "seq": "%(agent)d"} if by_agent else None
        text = canonical(event | {"args": args, "agent": agent} | holes)
        # Numbers have no quotes.
        template = re.sub(r'"(%\(\w+\)d)"', r"\1", text)
        return cls(event["operation"], event["decision"], by_agent, template)


class _Chains:
    """Makes one session after another."""

    def __init__(self, level: Level, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._last_id = last_id(connection)
        self._level = level.name, json.dumps(level.stored()), Terms(image="paddock").column()
        self._create, self._close = _Kind.of(**_CREATE), _Kind.of(**_CLOSE)
        self._start, self._exit = _Kind.of(**_START), _Kind.of(**_EXIT)
        self._refusal = _Kind.of(**_REFUSAL)

    def add(self, count: int) -> None:
        """An ended session with so many events."""
        number = self._last_id + 1
        key, session = f"grown{number:015d}", f"box-{number}"
        owner = OWNERS[number // count % len(OWNERS)]
        rows = list(self._rows(key, session, count))
        begun, ended = rows[0][4], rows[-1][4]
        size = sum(len(row[10]) + ROW_BYTES for row in rows)
        termination = json.dumps(asdict(Termination(Rationale.NORMAL, "SUCCESS", 0, ended)))
        end = size, begun, ended, termination, f"sb-{number}"
        self._connection.executemany(_EVENTS, rows)
        self._connection.execute(_SESSION, (key, session, owner, *self._level, *end))
        self._connection.execute("INSERT INTO incarnations VALUES (?, 1)", (session,))
        kinds = Counter((key, row[5], row[6] or "") for row in rows)
        counts = [(*kind, each) for kind, each in kinds.items()]
        self._connection.executemany("INSERT INTO event_counts VALUES (?, ?, ?, ?, 0)", counts)

    def _rows(self, key: str, session: str, count: int) -> Iterator[tuple[Any, ...]]:
        head, reported = GENESIS_HASH, 0
        for seq in range(1, count + 1):
            self._last_id = number = self._last_id + 1
            kind = self._kind(seq, count)
            reported += kind.by_agent
            values = {
                "id": number,
                "seq": seq,
                "session": session,
                "command": f"c{number // 2}",
                "time": time_text(_BEGIN + timedelta(milliseconds=number)),
                "word": NEEDLE if number % NEEDLE_EVERY == 0 else "hay",
                "agent": reported,
            }
            text = kind.template % values
            digest = chain_hash(head, text)
            yield (
                *(number, key, session, seq, values["time"], kind.operation, kind.decision),
                *(values["command"], *(("boot", reported) if kind.by_agent else (None, None))),
                *(text, head, digest),
            )
            head = digest

    def _kind(self, seq: int, count: int) -> _Kind:
        if seq in (1, count):
            return self._create if seq == 1 else self._close
        if self._last_id % (2 * _REFUSED_EVERY) == 0:
            return self._refusal
        return self._exit if seq % 2 else self._start


def grow(state_dir: Path, sessions: int, events_each: int) -> None:
    """Adds so many ended sessions to the ledger, which is made if it is missing.

    The search index follows, as it does in a control plane; none may use the directory meanwhile.
    """
    ensure_state_dir(state_dir)
    file = state_dir / DATABASE_FILE
    migrate_file(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        chains = _Chains(load_levels()["low"], connection)
        for _ in range(sessions):
            connection.execute("BEGIN")
            chains.add(events_each)
            connection.execute("COMMIT")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with closing(open_index(state_dir / "search.db", file)) as index:
        more = True
        while more:
            index.execute("BEGIN")
            more = feed(index).more
            index.execute("COMMIT")
