"""PostgreSQL for tests: a server for each worker, a fresh database for each test. No engine.

Tests import the fixtures in their `conftest.py`. Without PostgreSQL they fail.
"""

import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from scripts.cluster.database import Database, DatabaseError, programs

# Another program may take the port between the choice and the start.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class FreshDatabase:
    """An empty database; `dsn` has the password, and the user may do everything in it.

    A test may stop, kill and start the server, which no other test uses meanwhile.
    """

    name: str
    server: Database

    @property
    def dsn(self) -> str:
        """Its URL, with the password."""
        return self.server.url(self.name)

    def sql(self, statement: str) -> str:
        """Runs one statement beside the tested code; returns its rows, one a line."""
        return self.server.sql(statement, self.name)

    def dump(self) -> str:
        """All that is in it."""
        return self.server.dump(self.name)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Database]:
    """The worker's server, with a directory of its own."""
    if programs() is None:
        pytest.fail("no PostgreSQL here: `make postgres` installs it")
    with running() as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Database) -> Iterator[FreshDatabase]:
    """A fresh database. The server runs again at the end, whatever the test did to it."""
    fresh = FreshDatabase(f"test_{secrets.token_hex(8)}", postgres_server)
    postgres_server.start()
    postgres_server.sql(f"CREATE DATABASE {fresh.name}")
    yield fresh
    postgres_server.resume()
    postgres_server.start()
    postgres_server.sql(f"DROP DATABASE {fresh.name} WITH (FORCE)")


@contextmanager
def running() -> Iterator[Database]:
    """A server on loopback, ended and removed at the end."""
    # Not below pytest's directory, which its user can't enter.
    with tempfile.TemporaryDirectory(prefix="paddock-postgres-") as directory:
        os.chmod(directory, 0o755)
        server = _started(Path(directory) / "server")
        try:
            yield server
        finally:
            server.remove()


def _started(directory: Path) -> Database:
    for last in range(_TRIES):
        server = Database(directory, "127.0.0.1", _free_port())
        server.make(sync=False)
        try:
            server.start()
        except DatabaseError:
            if last == _TRIES - 1:
                server.remove()
                raise
            continue
        break
    return server


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
