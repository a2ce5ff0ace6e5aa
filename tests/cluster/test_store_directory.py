"""The cluster as gateways see it: nodes, the node of an id, pages of sessions."""

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.cluster import messages, reports
from orchestrator.cluster.directory import Hold, SessionFilters, Where
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.postgres import directory as module
from orchestrator.cluster.postgres.directory import PostgresDirectory
from orchestrator.cluster.postgres.nodes import NodeAdmin
from tests.support.cluster_store import (
    ENDED,
    StoreNode,
    claim,
    joined,
    make_schema,
    opened,
    report,
    set_lease,
    summary,
)
from tests.support.limits import WAIT_SECONDS
from tests.support.postgres import FreshDatabase


@pytest_asyncio.fixture
async def nodes(postgres: FreshDatabase) -> AsyncIterator[list[StoreNode]]:
    await make_schema(postgres.dsn)
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(opened(postgres.dsn))
        yield [await joined(database, f"node-{number}") for number in (1, 2)]


@pytest.fixture
def directory(nodes: list[StoreNode]) -> PostgresDirectory:
    return PostgresDirectory(nodes[0].database)


def test_a_report_comes_back_as_it_was() -> None:
    sent = report("node-1", labels={"a": "b"}, waiting={"low sandbox": 2}, used_by={"ann": 1})
    stored = reports.stored(sent)
    assert reports.read(stored, "ready") == sent
    # A later version says more.
    assert reports.read({**stored, "moons": 1}, "draining").state == "draining"


async def test_an_id_is_where_it_lives_then_where_its_files_are_then_where_its_record_is(
    nodes: list[StoreNode], directory: PostgresDirectory
) -> None:
    one, two = nodes

    async def place_of(name: str) -> Where | None:
        return (await directory.places_of([name, "another", "odd\0\ud800"])).get(name)

    assert await place_of("W-1") is None
    assert await place_of("odd\0\ud800") is None
    await one.places.claim(claim("W-1"))
    assert await place_of("w-1") == Where("node-1", Hold.LIVE)
    await one.release("key-W-1")
    assert await place_of("W-1") == Where("node-1", Hold.WORKSPACE)
    await one.purge("W-1")
    assert await place_of("W-1") == Where("node-1", Hold.RECORD)
    later = summary(created_at="2026-02-01T00:00:00.000000Z")
    await two.places.claim(claim("w-1", key="later", shown=later))
    await two.release("later")
    await two.purge("w-1")
    found = await place_of("W-1")
    assert found is not None
    assert (found.node, found.hold) == ("node-2", Hold.RECORD)
    # Many at once.
    await one.places.claim(claim("Y"))
    assert await directory.places_of(["y", "W-1", "x"]) == {
        "y": Where("node-1", Hold.LIVE),
        "W-1": Where("node-2", Hold.RECORD),
    }
    # A withdrawn claim was never there.
    await one.places.claim(claim("X"))
    await one.unclaim("key-X")
    assert await place_of("X") is None


async def test_dead_nodes_are_shown_and_forgotten_ones_are_not(
    nodes: list[StoreNode], directory: PostgresDirectory
) -> None:
    await set_lease(nodes[0].database, "node-2", "-1 s")
    known = await directory.nodes()
    assert [(each.name, each.alive, each.takes_sessions) for each in known] == [
        ("node-1", True, True),
        ("node-2", False, False),
    ]
    assert known[0].report.capacity == report("node-1").capacity
    await NodeAdmin(nodes[0].database).forget("node-2")
    assert [each.name for each in await directory.nodes()] == ["node-1"]


async def test_what_changes_of_a_node_is_told_at_once(
    nodes: list[StoreNode], directory: PostgresDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Joining, draining, the end of a lease, its return, giving up: none of them is polled for."""
    monkeypatch.setattr(module, "_REPORTS_SECONDS", math.inf)
    one, two = nodes
    admin = NodeAdmin(one.database)
    async with asyncio.timeout(WAIT_SECONDS), aclosing(directory.following()) as told:

        async def shows(*wanted: tuple[str, str, bool]) -> None:
            async for known in told:
                if [(each.name, each.report.state, each.alive) for each in known] == [*wanted]:
                    return

        ready = ("node-1", "ready", True)
        await shows(ready, ("node-2", "ready", True))
        await admin.drain("node-2")
        await shows(ready, ("node-2", "draining", True))
        await set_lease(one.database, "node-2", "0.3 s")
        # Nothing is told at its end: the database is asked then. What changes it is told of.
        await admin.undrain("node-2")
        await shows(ready, ("node-2", "ready", False))
        await two.lease.renew()
        await shows(ready, ("node-2", "ready", True))
        await set_lease(one.database, "node-2", "-1 s")
        await admin.forget("node-2")
        await shows(ready)
        await joined(one.database, "node-3")
        await shows(ready, ("node-3", "ready", True))


async def test_renewals_are_no_news(
    nodes: list[StoreNode], directory: PostgresDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REPORTS_SECONDS", math.inf)
    heard: asyncio.Queue[None] = asyncio.Queue()
    async with nodes[0].database.listening("paddock_nodes", lambda: heard.put_nowait(None)):
        for _ in range(3):
            await nodes[0].lease.renew()
        await NodeAdmin(nodes[0].database).drain("node-1")
        await heard.get()
        assert heard.empty()


def moment(number: int) -> str:
    return f"2026-01-01T00:00:{number:02}.000000Z"


async def test_pages_have_each_session_once_in_their_order(
    nodes: list[StoreNode], directory: PostgresDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_EXAMINED", 4)
    for number in range(24):
        await nodes[number % 2].places.claim(
            claim(
                f"s{number:02}",
                owner="bob" if number % 3 == 0 else "ann",
                # Some begin at the same moment.
                shown=summary(
                    created_at=moment(number // 2),
                    labels={"team": "x" if number % 4 == 0 else "y"},
                    work_id="w" if number < 6 else None,
                    parent="S00" if number in (20, 21) else None,
                ),
            )
        )
    for number in (1, 2, 3):
        await nodes[number % 2].release(f"key-s{number:02}")

    async def all_of(owner: str | None = None, limit: int = 5, **wanted: Any) -> list[str]:
        found: list[str] = []
        after = None
        for _ in range(60):
            page = await directory.sessions(owner, after, limit, SessionFilters(**wanted))
            assert len(page.items) <= limit
            found += [each.session_id for each in page.items]
            after = page.next
            if after is None:
                return found
        raise AssertionError("the list never ends")

    everything = [f"s{number:02}" for number in range(24) if number not in (20, 21)]
    live = [each for each in everything if each not in ("s01", "s02", "s03")]
    recent = ENDED.replace("13:", "12:")
    assert await all_of(oldest_first=True, ended_after=recent) == everything
    assert await all_of(limit=1, ended_after=recent) == everything[::-1]
    assert await all_of(ended_after=ENDED) == live[::-1]
    assert await all_of(status="live") == live[::-1]
    assert await all_of(status="ended") == ["s03", "s02", "s01"]
    assert await all_of(owner="bob", status="live", oldest_first=True) == [
        each for each in live if int(each[1:]) % 3 == 0
    ]
    assert await all_of(labels={"team": "x"}, status="live", oldest_first=True) == [
        each for each in live if int(each[1:]) % 4 == 0
    ]
    assert await all_of(work_id="w", status="live", oldest_first=True) == ["s00", "s04", "s05"]
    assert await all_of(parent="s00", oldest_first=True) == ["s20", "s21"]
    assert await all_of(labels={"a'; --": "\0"}, work_id="'") == []
    assert await all_of(status="paused") == []


async def test_lists_show_what_nodes_have_said(
    nodes: list[StoreNode], directory: PostgresDirectory
) -> None:
    one, _ = nodes
    await one.places.claim(claim("s"))
    shown = summary("paused", labels={"a": "b"}, work_id="w")
    one.outbox.put(Kind.CHANGED, messages.changed("key-s", shown))
    await one.outbox.delivered()
    (found,) = (await directory.sessions("ann", None, 10, SessionFilters("paused"))).items
    assert (found.summary, found.node, found.ended_at) == (shown, "node-1", None)
    await one.release("key-s")
    (found,) = (await directory.sessions(None, None, 10, SessionFilters("ended"))).items
    assert found.ended_at == ENDED
