"""A session's terms: one object, one column, which older databases get when they are opened."""

import inspect
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import build_schema
from orchestrator.rules.policy.levels import clamped_limits, load_levels
from orchestrator.state import stored_sessions
from orchestrator.state.session import Session
from orchestrator.state.session_pages import WantedSessions, find_keys
from orchestrator.state.stored_sessions import SessionRow
from orchestrator.state.terms import Terms
from paddock.client.session_terms import SessionTerms, session_body
from paddock.contract.session_requests import SessionBody
from paddock.contract.words import IdleAction

# The newest schema in which each term had a column of its own.
COLUMNS_UNTIL = 37
# What there was not yet.
LATER = {"metadata", "volumes", "workspace_path", "missing_image", "recovery"}
# What a session is told, and never asks for.
FOUND = {"missing_image"}
AT = "2026-03-04T09:30:00.000000Z"
ALL = Terms(
    image="python:3.13",
    labels={"team": "search", 'with.dot and "quote"': "süß"},
    env={"A": "1", "B": "two\nlines"},
    limits={"cpus": 0.5, "memory_bytes": 134217728},
    idle_timeout=600,
    idle_action=IdleAction.SUSPEND,
    wall_timeout=86400,
    mounts=("greeter", "data"),
    role="builder",
    tools=("psql", "redis-cli"),
    work_id="issue-4711",
    policy_resolved_ref="policy@3",
    episode_id="first",
)
NO_TOOLS = Terms(image="base", idle_timeout=60, tools=())
FEW = Terms(image="base", idle_timeout=60)


def insert_old(connection: sqlite3.Connection, key: str, status: str, terms: Terms) -> None:
    """A session as it was stored in columns."""
    told = {
        name: json.dumps(value) if isinstance(value, dict | list) else value
        for name, value in terms.stored().items()
        if name not in LATER
    }
    columns: dict[str, Any] = {
        **told,
        "key": key,
        "id": key,
        "owner": "ci",
        "status": status,
        "permission_level": "low",
        "level": json.dumps(load_levels()["low"].stored()),
        "created_at": AT,
        "acknowledged": 1,
        "episodes": 2,
    }
    names, places = ", ".join(columns), ", ".join("?" * len(columns))
    connection.execute(
        f"INSERT INTO sessions ({names}) VALUES ({places})",
        tuple(columns.values()),
    )


def restored(row: sqlite3.Row) -> Session:
    return SessionRow(row, lambda name: f"/{name}", clamped_limits).session


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A database from before there were terms."""
    path = tmp_path / "paddock.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        build_schema(connection, range(COLUMNS_UNTIL + 1))
        insert_old(connection, "all", "active", ALL)
        insert_old(connection, "no-tools", "paused", NO_TOOLS)
        insert_old(connection, "few", "active", FEW)
        insert_old(connection, "ended", "completed", ALL)
    return path


async def test_sessions_of_an_older_database_keep_all_their_terms(old: Path) -> None:
    database = await Database.open(old)
    try:
        rows = await database.read(lambda connection: stored_sessions.load(connection, AT, ()))
        found = {row["key"]: restored(row) for row in rows}
        assert {key: session.terms for key, session in found.items()} == {
            "all": ALL,
            "no-tools": NO_TOOLS,
            "few": FEW,
        }
        assert found["all"].episodes == 2
        assert found["all"].limits.cpus == 0.5
    finally:
        await database.close()


@pytest.mark.parametrize(
    ("work_id", "label", "count"),
    [
        ("issue-4711", None, 1),
        ("issue", None, 0),
        (None, ('with.dot and "quote"', "süß"), 1),
        (None, ("team", "other"), 0),
    ],
)
async def test_ended_sessions_of_an_older_database_are_found_by_their_terms(
    old: Path, work_id: str | None, label: tuple[str, str] | None, count: int
) -> None:
    database = await Database.open(old)
    wanted = WantedSessions("ci", "", "ended", label, work_id=work_id)
    try:
        found = await database.read(lambda conn: find_keys(conn, wanted, None, 10))
        rows = await database.read(lambda conn: stored_sessions.load_keys(conn, found.keys))
        assert [restored(row).terms for row in rows] == [ALL] * count
    finally:
        await database.close()


async def test_the_terms_have_no_other_column_and_work_is_found_by_an_index(old: Path) -> None:
    database = await Database.open(old)

    def look(connection: sqlite3.Connection) -> tuple[set[str], str]:
        stored = {name for _, name, *_ in connection.execute("PRAGMA table_info(sessions)")}
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT key FROM sessions WHERE work_id = 'a'")
        return stored, str(plan.fetchall())

    try:
        stored, plan = await database.read(look)
    finally:
        await database.close()
    assert "terms" in stored
    assert not stored & Terms.names()
    assert "sessions_work" in plan


def test_terms_are_restored_as_they_were() -> None:
    for terms in (ALL, NO_TOOLS, FEW, Terms()):
        assert Terms.restored(json.loads(terms.column())) == terms
        assert Terms.restored(terms.given()) == terms


def test_the_record_has_no_values_of_variables() -> None:
    recorded = ALL.recorded()
    assert recorded["env"] == ["A", "B"]
    assert "two" not in str(recorded)


def test_requests_and_the_client_have_every_term() -> None:
    asked = SessionBody.model_fields.keys()
    assert asked >= Terms.names() - FOUND
    assert SessionTerms.__annotations__.keys() == asked - {"id"}


def test_the_client_describes_each_term_and_refuses_others() -> None:
    # Python 3.13 removes the indentation itself.
    described = inspect.getdoc(SessionTerms) or ""
    assert [name for name in SessionTerms.__annotations__ if f"\n{name}: " not in described] == []
    assert session_body({"labels": {"a": "b"}, "role": None}, id="x") == {
        "id": "x",
        "labels": {"a": "b"},
    }
    with pytest.raises(TypeError, match="'rôle'"):
        session_body({"rôle": "agent"})  # type: ignore[typeddict-unknown-key]
