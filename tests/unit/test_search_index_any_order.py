"""Whatever happens to ledger and index, a search finds what a scan finds."""

import asyncio
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.ground.store.database import Database
from orchestrator.ground.tasks import Tasks
from orchestrator.record.audit.archiving import Archiving
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.search_index import feed
from orchestrator.record.search_index import search as searching
from orchestrator.record.search_index.search import Search
from orchestrator.record.search_index.search_index import SearchIndex
from tests.unit.ledger_support import draft
from tests.unit.search_support import OWNERS, add_sessions, entries, find_all, scanned

LONG_AGO = "2020-01-01T00:00:00.000000Z"


class World:
    """A ledger, its index, and what may happen to them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.index: SearchIndex | None = None
        self.gone: set[str] = set()

    async def open(self) -> None:
        self.database = await Database.open(self.directory / "paddock.db")
        self.ledger = Ledger(self.database)
        self._follow()

    def _follow(self) -> None:
        path, ledger = self.directory / "search.db", self.directory / "paddock.db"
        self.index = SearchIndex(path, ledger, self.ledger)
        self.index.start(Tasks())

    async def close(self) -> None:
        assert self.index is not None
        await self.index.close()
        await self.ledger.close()
        await self.database.close()

    async def append(self, key: str, operation: str, actor: str, denied: bool, count: int) -> None:
        members: dict[str, Any] = {"operation": operation, "actor": actor}
        if denied:
            members |= {"decision": "deny", "rule": "command-allowlist"}
        await asyncio.gather(*(self.ledger.append(draft(key, **members)) for _ in range(count)))

    async def restart(self) -> None:
        await self.close()
        await self.open()

    async def kill(self) -> None:
        """The follower is gone, between any two of its portions."""
        assert self.index is not None
        assert self.index._task is not None
        await self.index._task.close()
        await self.restart()

    async def rebuild(self) -> None:
        assert self.index is not None
        await self.index.rebuild()

    async def keep(self) -> None:
        """A backup of the ledger."""
        with (
            closing(sqlite3.connect(self.directory / "kept.db")) as target,
            closing(sqlite3.connect(self.directory / "paddock.db")) as source,
        ):
            source.backup(target)

    async def restore(self) -> None:
        """The backup is restored, and the index stays as it was."""
        if not (self.directory / "kept.db").exists():
            return
        await self.close()
        for file in self.directory.glob("paddock.db*"):
            file.unlink()
        (self.directory / "paddock.db").write_bytes((self.directory / "kept.db").read_bytes())
        await self.open()

    async def archive(self, key: str) -> None:
        await self.database.write(
            lambda connection: connection.execute(
                "UPDATE sessions SET terminated_at = ? WHERE key = ?",
                (LONG_AGO, key),
            )
        )
        archiving = Archiving(
            self.database,
            self.ledger,
            self.directory / "archive",
            self.directory / "evidence",
            lambda owner, size: None,
        )
        await archiving.run(timedelta(0), "admin")

    async def check(self, wanted: Search, limit: int) -> None:
        assert self.index is not None
        expected = await scanned(self.database, wanted)
        assert await find_all(self.index, wanted, limit) == expected


KEYS, OPERATIONS, ACTORS = tuple(OWNERS), ("command.start", "file.read"), ("admin", "robot")
SEARCHES = st.builds(
    Search,
    session=st.sampled_from((None, None, "box", "other", "none")),
    incarnation=st.sampled_from((None, None, 1, 2)),
    owner=st.sampled_from((None, None, "ci", "ops")),
    visible_to=st.sampled_from((None, None, "ci")),
    operation=st.sampled_from((None, *OPERATIONS, "audit.archived")),
    decision=st.sampled_from((None, None, "deny", "allow")),
    rule=st.sampled_from((None, None, "command-allowlist")),
    actor=st.sampled_from((None, *ACTORS)),
    text=st.sampled_from((None, None, "ROBOT")),
    since=st.sampled_from((None, None, LONG_AGO, "2999")),
    until=st.sampled_from((None, None, LONG_AGO, "2999")),
)
CHECKS = st.tuples(st.just("check"), SEARCHES, st.integers(1, 9))
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("append"),
            st.sampled_from(KEYS),
            st.sampled_from(OPERATIONS),
            st.sampled_from(ACTORS),
            st.booleans(),
            st.integers(1, 12),
        ),
        CHECKS,
        CHECKS,
        st.tuples(st.just("archive"), st.sampled_from(KEYS)),
        *(st.tuples(st.just(each)) for each in ("restart", "kill", "rebuild", "keep", "restore")),
    ),
    max_size=25,
)


def _removes(connection: sqlite3.Connection) -> bool:
    """Whether entries of archived chains are still being removed."""
    return connection.execute("SELECT 1 FROM archived").fetchone() is not None


async def _play(steps: list[tuple[Any, ...]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        world = World(Path(directory))
        await world.open()
        try:
            await world.database.write(add_sessions)
            for name, *values in steps:
                step: Callable[..., Any] = getattr(world, name)
                await step(*values)
            await world.check(Search(), 5)
            # Nothing is left of events that the ledger no longer has.
            assert world.index is not None
            await world.index.reach()
            await world.restart()
            await world.index.reach()
            while await world.index.browse(_removes):
                pass
            ids = "SELECT id FROM events ORDER BY id"
            rows = await world.database.read(lambda conn: conn.execute(ids).fetchall())
            assert entries(world.directory) == rows
        finally:
            await world.close()


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_answers_are_those_of_a_scan_whatever_happened(steps: list[tuple[Any, ...]]) -> None:
    with (
        mock.patch.object(feed, "PORTION", 4),
        mock.patch.object(searching, "SLICE", 5),
        mock.patch.object(searching, "MOST_EXAMINED", 12),
    ):
        asyncio.run(_play(steps))
