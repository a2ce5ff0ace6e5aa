"""The database that tests and clusters on one machine have."""

import stat
from pathlib import Path

import pytest

from scripts.cluster.database import Database, DatabaseError
from tests.support.postgres import FreshDatabase, running


def test_what_was_confirmed_survives_a_kill(postgres: FreshDatabase) -> None:
    for setting in ("fsync", "synchronous_commit", "full_page_writes"):
        assert postgres.sql(f"SHOW {setting}") == "on\n"
    postgres.sql("CREATE TABLE kept AS SELECT 1 AS number")
    postgres.server.kill()
    assert postgres.server.processes() == []
    postgres.server.start()
    assert postgres.sql("SELECT number FROM kept") == "1\n"


def test_each_test_has_an_empty_database(postgres: FreshDatabase) -> None:
    assert postgres.sql("SELECT count(*) FROM pg_stat_user_tables") == "0\n"


def test_nobody_enters_without_the_password(postgres: FreshDatabase) -> None:
    file = postgres.server.password_file
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    password = file.read_text()
    file.write_text("wrong\n")
    try:
        with pytest.raises(DatabaseError, match="password authentication failed"):
            postgres.sql("SELECT 1")
    finally:
        file.write_text(password)


def test_it_is_made_and_started_once(postgres: FreshDatabase) -> None:
    server = postgres.server
    pid, password = server.pid(), server.password_file.read_text()
    server.make()
    server.start()
    assert (server.pid(), server.password_file.read_text()) == (pid, password)


def test_nothing_is_left_of_it() -> None:
    with running() as server:
        directory: Path = server.directory
        assert server.pid() is not None
    assert server.pid() is None
    assert not directory.parent.exists()


def test_a_port_in_use_is_said_with_the_log(postgres: FreshDatabase, tmp_path: Path) -> None:
    with running() as other:
        other.stop()
        taken = Database(other.directory, other.host, postgres.server.port)
        with pytest.raises(DatabaseError, match="its log is"):
            taken.start()
        assert "Address already in use" in taken.log.read_text()
