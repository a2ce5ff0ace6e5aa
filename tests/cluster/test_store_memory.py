"""The memory's two stores, in a node's database and in the cluster's: the same in both."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.ground.errors import (
    ClusterUnavailableError,
    ConflictError,
    NotFoundError,
    PaddockError,
    ValidationError,
)
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect
from orchestrator.work.memory import memory_store
from orchestrator.work.memory.entries import EntryKind, MemoryEntry
from orchestrator.work.memory.memory_store import MemoryStore, OwnMemory
from orchestrator.work.memory.shared_memory import SharedMemory
from tests.support.cluster_store import make_schema, opened
from tests.support.postgres import FreshDatabase

DRAFT = EventDraft("memory.write", actor="ci", decision="allow")


def entry(text: str, number: int, kind: EntryKind = "note", **members: str) -> MemoryEntry:
    owner, namespace = members.get("owner", "ci"), members.get("namespace", "default")
    time = now()
    return MemoryEntry(
        *(f"mem-{number:016x}", owner, namespace, kind, text, ("tag-of-it",)),
        *("s", "ci", time, time),
    )


class Kept:
    """A store whose record is a list."""

    def __init__(self, store: MemoryStore, database: Database) -> None:
        self.store = store
        self.drafts: list[EventDraft] = []
        self._database = database

    async def write(self, draft: EventDraft, effect: Effect) -> None:
        await self._database.write(effect)
        self.drafts.append(draft)

    async def add(self, *entries: MemoryEntry) -> None:
        for each in entries:
            await self.store.add(each, DRAFT, self.write)

    async def texts(self, words: str, owner: str = "ci", place: str = "default") -> list[str]:
        found = await self.store.found(owner, place, words, 10)
        return [each.text for each in found]


@pytest_asyncio.fixture(params=["own", "shared"])
async def kept(
    request: pytest.FixtureRequest, postgres: FreshDatabase, tmp_path: Path
) -> AsyncIterator[Kept]:
    own = await Database.open(tmp_path / "paddock.db")
    try:
        if request.param == "own":
            yield Kept(OwnMemory(own), own)
            return
        await make_schema(postgres.dsn)
        async with opened(postgres.dsn) as database:
            yield Kept(SharedMemory(database), own)
    finally:
        await own.close()


async def test_it_is_searched_alike(kept: Kept) -> None:
    await kept.add(
        entry("the tests need PYTHONPATH", 1),
        entry("tests, tests and again tests", 2),
        entry("nothing of it", 3),
        entry("mine of another", 4, owner="other"),
        entry("mine elsewhere", 5, namespace="n"),
        entry("Ärger mit /usr/local/bin, snake_case and it's 'quoted' \\", 6),
    )
    assert await kept.texts("Tests") == [
        "tests, tests and again tests",
        "the tests need PYTHONPATH",
    ]
    assert len(await kept.texts("pythonpath nothing")) == 2
    assert (await kept.texts(""))[0].startswith("Ärger")
    assert len(await kept.texts("tag-of-it")) == 4
    for words in ("arger", "LOCAL", "snake_case", "case", "quoted", "s"):
        assert len(await kept.texts(words)) == 1, words
    for words in ("absent", "case_snake", "snake_usr", "it_tag", "a" * 100):
        assert await kept.texts(words) == [], words
    # Other keys and namespaces are not found.
    for words in ("mine", ""):
        assert await kept.texts(words, "other") == ["mine of another"]
        assert await kept.texts(words, place="n") == ["mine elsewhere"]
    # The syntax of queries is text.
    for words in ('"', "*", "a & !b", "a:*", "a <-> b", "' OR 1", "\\", "___", "(", "\0", "!!"):
        await kept.texts(words)


async def test_lists_are_alike(kept: Kept) -> None:
    kinds: tuple[EntryKind, ...] = ("sop", "bootstrap", "note")
    some = [entry(kind, number, kind) for number, kind in enumerate(kinds * 2)]
    await kept.add(*some, entry("other", 9, owner="other"))
    first = await kept.store.first_of("ci", "default", ("sop", "bootstrap"), 3)
    assert [each.id for each in first] == [some[0].id, some[3].id, some[1].id]
    newest = await kept.store.listed("ci", None, None, 2)
    assert newest == [some[5], some[4]]
    assert await kept.store.listed(None, "default", newest[-1].id, 2) == [some[3], some[2]]
    for absent in ("mem-0", "\0", "x' --"):
        assert await kept.store.listed("ci", None, absent, 2) == []
        assert await kept.store.get(absent) is None


async def test_changes_are_alike(kept: Kept) -> None:
    one = entry("before", 1)
    await kept.add(one)
    after = replace(one, text="after", session_id=None, tags=("new",), kind="sop")
    await kept.store.replace(after, DRAFT, kept.write)
    assert await kept.store.get(one.id) == after
    assert (await kept.texts("before"), await kept.texts("new")) == ([], ["after"])
    await kept.store.remove(after, DRAFT, kept.write)
    assert await kept.texts("") == []
    for change in (kept.store.replace, kept.store.remove):
        with pytest.raises(NotFoundError):
            await change(after, DRAFT, kept.write)
        assert await kept.store.get(one.id) is None
    allowed = [each for each in kept.drafts if each.decision == "allow"]
    failed = [each for each in kept.drafts if each.error is not None]
    # What was on record as allowed and then failed has its reason on record.
    assert len(allowed) - len(failed) == 3


async def test_additions_at_once_stay_below_the_maximum(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_store, "MOST_ENTRIES", 2)
    adding = (kept.add(entry("one of many", number)) for number in range(5))
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert sum(isinstance(each, ConflictError) for each in results) == 3
    assert len(await kept.texts("")) == 2


async def test_all_nodes_have_one_memory_and_none_without_the_database(
    postgres: FreshDatabase, tmp_path: Path
) -> None:
    await make_schema(postgres.dsn)
    own = await Database.open(tmp_path / "paddock.db")
    async with opened(postgres.dsn, 2.0) as first, opened(postgres.dsn, 2.0) as second:
        here, there = Kept(SharedMemory(first), own), Kept(SharedMemory(second), own)
        await here.add(entry("written here", 1))
        assert await there.texts("written") == ["written here"]
        for text in ("nul \0", "half \ud800"):
            with pytest.raises(ValidationError) as refused:
                await here.add(entry(text, 2))
            assert refused.value.fields["field"] == "text"
        postgres.server.stop()
        written = len(here.drafts)
        tries = (here.add(entry("more", 3)), here.texts("written"), here.store.get("mem-1"))
        for each in tries:
            with pytest.raises(ClusterUnavailableError):
                await each
        # Nothing is on record as if it were there.
        assert len(here.drafts) == written
    await own.close()


async def test_what_fails_after_it_is_on_record_says_so(
    postgres: FreshDatabase, tmp_path: Path
) -> None:
    await make_schema(postgres.dsn)
    own = await Database.open(tmp_path / "paddock.db")
    async with opened(postgres.dsn, 2.0) as database:
        kept = Kept(SharedMemory(database), own)

        async def dies(draft: EventDraft, effect: Effect) -> None:
            await kept.write(draft, effect)
            postgres.server.stop()

        with pytest.raises(PaddockError):
            await kept.store.add(entry("lost", 1), DRAFT, dies)
        allowed, failed = kept.drafts
        assert (allowed.decision, allowed.error) == ("allow", None)
        assert failed.decision is None
        assert "database" in str(failed.error)
    await own.close()
