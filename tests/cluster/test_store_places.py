"""Claims in the cluster's database: one id is one session, and quotas hold over all nodes."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest
import pytest_asyncio

from orchestrator.cluster import messages
from orchestrator.cluster.base import Holding, Message, Mine
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError, RateLimitedError
from orchestrator.ground.limits import KeyLimits, KeyUsage
from tests.support.cluster_store import (
    AMOUNTS,
    MIB,
    StoreNode,
    claim,
    counted_anew,
    joined,
    make_schema,
    opened,
    summary,
    usage_of,
)
from tests.support.postgres import FreshDatabase


@pytest_asyncio.fixture
async def nodes(postgres: FreshDatabase) -> AsyncIterator[list[StoreNode]]:
    """Two nodes, each with connections of its own."""
    await make_schema(postgres.dsn)
    async with AsyncExitStack() as stack:
        pools = [await stack.enter_async_context(opened(postgres.dsn)) for _ in range(2)]
        yield [await joined(pool, f"node-{n}") for n, pool in enumerate(pools, 1)]


@pytest.fixture
def database(nodes: list[StoreNode]) -> ClusterDatabase:
    return nodes[0].database


async def test_a_claim_is_the_nodes_place_and_its_keys_usage(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, _ = nodes
    place = await one.places.claim(claim("W-1"))
    assert (place.node, place.epoch, place.number) == ("node-1", 1, 1)
    mine = await one.places.mine()
    assert mine == Mine({"key-W-1": Holding(place, AMOUNTS)}, frozenset({"w-1"}))
    expected = (1, 500_000, 256 * MIB, 1, 100 * MIB)
    assert await usage_of(database) == await counted_anew(database) == expected


async def test_one_id_is_one_session_whatever_its_case(nodes: list[StoreNode]) -> None:
    tried = [
        node.places.claim(claim(session_id, key=f"k{n}{session_id}{times}"))
        for times in range(16)
        for n, node in enumerate(nodes)
        for session_id in ("W-1", "w-1")
    ]
    results = await asyncio.gather(*tried, return_exceptions=True)
    assert Counter(map(type, results)).most_common() == [
        (ConflictError, 63),
        (type(await _first_place(results)), 1),
    ]
    assert await usage_of(nodes[0].database) == await counted_anew(nodes[0].database)
    assert (await usage_of(nodes[0].database))[0] == 1


async def _first_place(results: Sequence[object]) -> object:
    return next(each for each in results if not isinstance(each, BaseException))


async def test_a_quota_holds_over_nodes_however_many_ask_at_once(nodes: list[StoreNode]) -> None:
    quota = KeyLimits(max_sessions=7, max_cpus=100)
    claims = [
        node.places.claim(claim(f"s-{n}-{number}", quota=quota))
        for number in range(20)
        for n, node in enumerate(nodes)
    ]
    results = await asyncio.gather(*claims, return_exceptions=True)
    refused = [each for each in results if isinstance(each, BaseException)]
    assert len(results) - len(refused) == 7
    for each in refused:
        assert isinstance(each, RateLimitedError), each
        assert each.fields["limit"] == "max_sessions"
    assert (await usage_of(nodes[0].database))[0] == 7
    assert await usage_of(nodes[0].database) == await counted_anew(nodes[0].database)


@pytest.mark.parametrize(
    ("limit", "quota"),
    [
        ("max_sessions", KeyLimits(max_sessions=1)),
        ("max_cpus", KeyLimits(max_cpus=0.9)),
        ("max_memory_bytes", KeyLimits(max_memory_bytes=511 * MIB)),
        ("max_workspaces", KeyLimits(max_workspaces=1)),
        ("max_workspace_bytes", KeyLimits(max_workspace_bytes=199 * MIB)),
    ],
)
async def test_a_refusal_names_its_limit_and_leaves_nothing(
    nodes: list[StoreNode], database: ClusterDatabase, limit: str, quota: KeyLimits
) -> None:
    one, two = nodes
    await one.places.claim(claim("first", quota=quota))
    with pytest.raises(RateLimitedError, match=f"^{limit} of this key is ") as caught:
        await two.places.claim(claim("second", quota=quota))
    assert caught.value.fields["limit"] == limit
    assert caught.value.fields["retry_after"] > 0
    assert not await two.sessions()
    assert await usage_of(database) == await counted_anew(database)


async def test_exactly_the_quota_is_permitted(nodes: list[StoreNode]) -> None:
    tenth = KeyUsage(1, 0.1, MIB, 0, 0)
    for number in range(10):
        await nodes[number % 2].places.claim(
            claim(f"t-{number}", amounts=tenth, quota=KeyLimits(max_cpus=1))
        )
    with pytest.raises(RateLimitedError, match="max_cpus"):
        await nodes[0].places.claim(claim("t-10", amounts=tenth, quota=KeyLimits(max_cpus=1)))


async def test_a_full_quota_of_workspaces_names_a_kept_one(nodes: list[StoreNode]) -> None:
    one, two = nodes
    await one.places.claim(claim("kept"))
    await one.release("key-kept")
    with pytest.raises(RateLimitedError, match="close kept --purge"):
        await two.places.claim(claim("other", quota=KeyLimits(max_workspaces=1)))


async def test_a_kept_workspace_is_its_owners_on_its_node_until_it_is_purged(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, two = nodes
    await one.places.claim(claim("W-1"))
    await one.release("key-W-1")
    assert await usage_of(database) == (0, 0, 0, 1, 100 * MIB)
    with pytest.raises(ConflictError, match="on another node"):
        await two.places.claim(claim("w-1", key="second"))
    with pytest.raises(ConflictError, match="another key's"):
        await one.places.claim(claim("W-1", key="third", owner="bob"))
    grown = replace(AMOUNTS, workspace_bytes=150 * MIB)
    await one.places.claim(claim("w-1", key="fourth", amounts=grown))
    assert await usage_of(database) == (1, 500_000, 256 * MIB, 1, 150 * MIB)
    await one.release("fourth")
    await one.purge("W-1")
    assert await usage_of(database) == (0, 0, 0, 0, 0)
    await two.places.claim(claim("W-1", key="fifth", owner="bob"))


async def test_a_withdrawn_claim_leaves_what_was_before(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, two = nodes
    await one.places.claim(claim("new"))
    await one.unclaim("key-new")
    assert await usage_of(database) == await counted_anew(database) == (0, 0, 0, 0, 0)
    await two.places.claim(claim("new", key="there"))
    await one.places.claim(claim("old"))
    await one.release("key-old")
    before = await usage_of(database)
    await one.places.claim(
        claim("old", key="again", amounts=replace(AMOUNTS, workspace_bytes=900 * MIB))
    )
    await one.unclaim("again")
    assert await usage_of(database) == await counted_anew(database) == before
    await one.unclaim("never")


async def test_a_session_in_its_parents_workspace_has_none_of_its_own(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, _ = nodes
    await one.places.claim(claim("child", amounts=KeyUsage(1, 1, MIB)))
    await one.unclaim("key-child")
    await one.places.claim(claim("child", key="b", amounts=KeyUsage(1, 1, MIB)))
    await one.release("b")
    assert await usage_of(database) == await counted_anew(database) == (0, 0, 0, 0, 0)


async def test_growth_is_asked_for_and_what_is_settled_is_exact(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, two = nodes
    quota = KeyLimits(max_cpus=2, max_memory_bytes=1024 * MIB)
    await one.places.claim(claim("a", quota=quota))
    await two.places.claim(claim("b", quota=quota))
    await one.usage.grow("ann", "key-a", KeyUsage(1, 1.5, 128 * MIB, 1, 100 * MIB), quota)
    assert await usage_of(database) == (2, 2_000_000, 512 * MIB, 2, 200 * MIB)
    with pytest.raises(RateLimitedError, match="max_cpus of this key is 2, it holds 2 "):
        await two.usage.grow("ann", "key-b", KeyUsage(1, 0.6, 256 * MIB), quota)
    for _ in range(2):  # it is whole amounts, not differences
        one.outbox.put(
            Kind.SETTLED, messages.settled("key-a", KeyUsage(1, 0.25, 64 * MIB, 1, 100 * MIB))
        )
        await one.outbox.delivered()
    assert await usage_of(database) == (2, 750_000, 320 * MIB, 2, 200 * MIB)
    assert await usage_of(database) == await counted_anew(database)
    with pytest.raises(ClusterUnavailableError, match="no place of this session"):
        await two.usage.grow("ann", "key-a", KeyUsage(1, 3), quota)


async def test_growth_at_once_on_all_nodes_stays_within_the_quota(nodes: list[StoreNode]) -> None:
    quota = KeyLimits(max_cpus=5)
    small = KeyUsage(1, 0.1, MIB)
    for number in range(16):
        await nodes[number % 2].places.claim(claim(f"g{number}", amounts=small, quota=quota))
    grown = [
        nodes[number % 2].usage.grow("ann", f"key-g{number}", KeyUsage(1, 1.0, MIB), quota)
        for number in range(16)
    ]
    results = await asyncio.gather(*grown, return_exceptions=True)
    assert sum(each is None for each in results) == 3  # 1.6 + 3 * 0.9 <= 5 < 1.6 + 4 * 0.9
    assert await usage_of(nodes[0].database) == await counted_anew(nodes[0].database)


async def test_a_volume_counts_until_it_is_purged(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, two = nodes
    quota = KeyLimits(max_workspaces=2)
    for _ in range(2):
        await one.usage.add_volume("ann", "V-1", 10 * MIB, quota)
    assert await usage_of(database) == (0, 0, 0, 1, 10 * MIB)
    await two.usage.add_volume("ann", "V-2", 10 * MIB, quota)
    with pytest.raises(RateLimitedError, match="max_workspaces"):
        await two.usage.add_volume("ann", "V-3", 10 * MIB, quota)
    await one.purge("V-1")
    await two.usage.add_volume("ann", "V-3", 10 * MIB, quota)
    assert await usage_of(database) == await counted_anew(database) == (0, 0, 0, 2, 20 * MIB)


async def test_messages_count_once_however_often_they_come(
    nodes: list[StoreNode], database: ClusterDatabase
) -> None:
    one, _ = nodes
    for name in ("a", "b"):
        await one.places.claim(claim(name))
    sent = [
        one.outbox.put(Kind.RELEASED, messages.released("key-a", "2026-01-31T13:00:00.000000Z")),
        one.outbox.put(Kind.PURGED, messages.purged("a")),
    ]
    await one.delivery.deliver(sent[:1])
    await asyncio.gather(*(one.delivery.deliver(sent) for _ in range(8)))
    assert await usage_of(database) == await counted_anew(database)
    # The id is used again, and an old message does not end the new session.
    await one.places.claim(claim("a", key="key-a"[::-1]))
    await one.delivery.deliver(sent)
    assert await one.sessions() == {"key-b", "a-yek"}
    assert (await usage_of(database))[0] == 2


async def test_no_text_of_a_session_holds_back_later_messages(nodes: list[StoreNode]) -> None:
    one, _ = nodes
    await one.places.claim(claim("a"))
    odd = summary(labels={"x\0": "y\ud800"}, work_id="\0\udfff")
    one.outbox.put(Kind.CHANGED, messages.changed("key-a", odd))
    one.outbox.messages.append(Message(2, "of a later version", {}))
    one.outbox.sent = 2
    await one.release("key-a")
    assert not await one.sessions()
