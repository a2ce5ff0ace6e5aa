"""A database and its ledger, as most tests of the record use them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from orchestrator.ground.store.database import Database
from orchestrator.record.audit.ledger import Ledger


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = await Database.open(tmp_path / "paddock.db")
    yield database
    await database.close()


@pytest.fixture
async def ledger(database: Database) -> AsyncIterator[Ledger]:
    ledger = Ledger(database)
    yield ledger
    await ledger.close()
