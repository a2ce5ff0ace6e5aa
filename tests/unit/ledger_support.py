"""Drafts and events for the tests of the audit modules."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from orchestrator.ground.events import EventDraft
from orchestrator.ground.tasks import Tasks
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.search_index.search_index import SearchIndex


def draft(key: str = "k1", **changes: Any) -> EventDraft:
    """A draft of a plain event in that chain."""
    values: dict[str, Any] = {
        "session_key": key,
        "session_id": f"s-{key}",
        "source": "control-plane",
        "actor": "admin",
        "operation": "command.start",
    }
    return EventDraft(**values | changes)


async def fill(ledger: Ledger, count: int, key: str = "k1") -> None:
    """That many events in one chain, one after the other."""
    for number in range(count):
        await ledger.append(draft(key, args={"number": number, "text": 'é"\\'}))


@asynccontextmanager
async def following(directory: Path, ledger: Ledger) -> AsyncIterator[SearchIndex]:
    """The search index of the ledger in that directory, which follows it."""
    index = SearchIndex(directory / "search.db", directory / "paddock.db", ledger)
    index.start(Tasks())
    try:
        yield index
    finally:
        await index.close()
