"""The chaos run finds each kind of fault of the search index, and none where there is none."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.chaos.search_index import differences, position
from tests.support.grown_record import grow

_ARCHIVED = (
    "INSERT INTO archives (session_key, session_id, owner, file, sha256, bytes, seq, hash,"
    " archived_at) SELECT key, id, owner, '', '', 0, 0, '', '' FROM sessions LIMIT 1"
)


@pytest.fixture
def state_dir(tmp_path: Path) -> Path:
    grow(tmp_path, 3, 40)
    return tmp_path


def _run(state_dir: Path, name: str, *statements: str) -> None:
    with closing(sqlite3.connect(state_dir / name, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)


def test_an_index_that_follows_is_whole(state_dir: Path) -> None:
    assert list(differences(state_dir)) == []
    assert position(state_dir) == 120
    assert position(state_dir / "nowhere") == 0


def test_events_behind_its_position_are_not_missing(state_dir: Path) -> None:
    _run(
        state_dir,
        "paddock.db",
        "INSERT INTO events SELECT id + 120, session_key, session_id, seq + 120, time, operation,"
        " decision, turn, command_id, NULL, NULL, body, prev_hash, hash FROM events",
    )
    assert list(differences(state_dir)) == []


def test_archived_chains_are_not_compared(state_dir: Path) -> None:
    _run(state_dir, "paddock.db", _ARCHIVED, "DELETE FROM events WHERE id BETWEEN 5 AND 40")
    assert list(differences(state_dir)) == []


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        ("DELETE FROM entries WHERE id = 7", "misses 1 events"),
        ("UPDATE entries SET id = 999 WHERE id = 120", "invents 1 events"),
        (
            "UPDATE entries SET owner = (SELECT number FROM words WHERE word = 'ops' AND"
            " kind = 'owner') WHERE id = 7",
            "invents 1 events",
        ),
        ("UPDATE words SET entries = entries + 1 WHERE kind = 'actor'", "counts 1 words wrongly"),
        ("UPDATE spans SET latest = earliest", "outside of their spans"),
        ("UPDATE state SET position = 60", "invents 60 events"),
    ],
)
def test_what_is_wrong_is_found(state_dir: Path, statement: str, complaint: str) -> None:
    _run(state_dir, "search.db", statement)
    assert any(complaint in line for line in differences(state_dir))
