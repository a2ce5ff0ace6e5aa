"""A database that is away, slow, read-only, full, foreign or of another version."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from orchestrator.cluster.postgres import pool, schema
from orchestrator.cluster.postgres.errors import explained
from orchestrator.cluster.postgres.pool import Access, ClusterDatabase, administering
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError
from tests.support.cluster_store import (
    CLUSTER,
    StoreNode,
    claim,
    counted_anew,
    joined,
    make_schema,
    opened,
    usage_of,
)
from tests.support.faulty_proxy import Fault, FaultyProxy, proxying
from tests.support.postgres import FreshDatabase
from tests.support.until import pause

# So long, a transaction of the tested node waits for a server that stalls.
SHORT = 1.0


@pytest_asyncio.fixture
async def node(postgres: FreshDatabase) -> AsyncIterator[StoreNode]:
    await make_schema(postgres.dsn)
    async with opened(postgres.dsn) as database:
        yield await joined(database, "node-1")


@pytest_asyncio.fixture
async def proxy(postgres: FreshDatabase) -> AsyncIterator[FaultyProxy]:
    async with proxying(postgres.dsn) as found:
        yield found


async def refused(node: StoreNode, session_id: str = "refused") -> str:
    """The line that a refused claim says."""
    with pytest.raises(ClusterUnavailableError) as caught:
        await node.places.claim(claim(session_id))
    assert "\n" not in caught.value.detail
    return caught.value.detail


@pytest.mark.parametrize("fault", list(Fault))
async def test_a_claim_that_is_broken_at_any_step_is_whole_or_nothing(
    fault: Fault, postgres: FreshDatabase, node: StoreNode, proxy: FaultyProxy
) -> None:
    """Whatever the client heard: a withdrawal leaves nothing."""
    ends = []
    for step in range(1, 40):
        async with opened(proxy.dsn, SHORT if fault is Fault.STALL else None) as database:
            tested = StoreNode(database, *_with(node, database))
            proxy.arm(fault, step)
            try:
                await tested.places.claim(claim("id", key=f"key-{step}"))
                broken = False
            except ClusterUnavailableError as error:
                said, broken = error.detail, True
                assert len(said.splitlines()) == 1
            hit = proxy.broken
            proxy.heal()
        await node.unclaim(f"key-{step}")
        assert await usage_of(node.database) == await counted_anew(node.database) == (0,) * 5
        ends.append(broken)
        if not hit:
            break
    # Each step until the claim is through was broken once; the last round had no fault.
    assert all(ends[:-1])
    assert not ends[-1]
    assert len(ends) > 5


def _with(node: StoreNode, database: ClusterDatabase) -> tuple[Any, ...]:
    """The same lease by other connections."""
    lease = node.lease
    places = type(node.places)(database, lease, node.outbox)
    usage = type(node.usage)(database, lease, node.outbox)
    return lease, places, usage, node.delivery, node.outbox


@pytest.mark.parametrize("fault", list(Fault))
async def test_messages_that_are_broken_at_any_step_count_once(
    fault: Fault, node: StoreNode, proxy: FaultyProxy
) -> None:
    for step in range(1, 40):
        await node.places.claim(claim(f"id-{step}"))
        node.outbox.put("released", {"session_key": f"key-id-{step}", "ended_at": "2026"})
        node.outbox.put("purged", {"workspace_id": f"id-{step}"})
        async with opened(proxy.dsn, SHORT if fault is Fault.STALL else None) as database:
            delivery = type(node.delivery)(database, node.lease)
            proxy.arm(fault, step)
            try:
                await delivery.deliver(node.outbox.messages)
            except ClusterUnavailableError:
                assert proxy.broken
            hit = proxy.broken
            proxy.heal()
        await node.outbox.delivered()
        assert await usage_of(node.database) == await counted_anew(node.database) == (0,) * 5
        if not hit:
            return
    raise AssertionError("it never came to an end")


async def test_a_withdrawal_waits_for_the_claim_that_the_network_has_delayed(
    node: StoreNode,
) -> None:
    """A claim whose commit is still under way is not overtaken by its own withdrawal."""
    held, go = asyncio.Event(), asyncio.Event()

    class Slow:
        """The node's database, whose commits wait."""

        async def transaction(self, work: Any) -> Any:
            async def slow(connection: Any) -> Any:
                result = await work(connection)
                held.set()
                await go.wait()
                return result

            return await node.database.transaction(slow)

    places = type(node.places)(Slow(), node.lease, node.outbox)  # type: ignore[arg-type]
    claiming = asyncio.create_task(places.claim(claim("a")))
    await held.wait()
    withdrawing = asyncio.create_task(node.unclaim("key-a"))
    blocked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory'"
    turn = 0
    while not await _value(node, blocked):
        turn += 1
        await pause(turn)
    go.set()
    await asyncio.gather(claiming, withdrawing)
    assert not await node.sessions()
    assert await usage_of(node.database) == (0,) * 5


async def _value(node: StoreNode, query: str) -> Any:
    async def work(connection: Any) -> Any:
        return await connection.fetchval(query)

    return await node.database.transaction(work)


async def test_a_server_that_is_not_there_and_comes_back(
    postgres: FreshDatabase, node: StoreNode
) -> None:
    await asyncio.to_thread(postgres.server.stop)
    said = await refused(node)
    assert "the cluster's database" in said
    assert await refused(node) == (
        "the cluster's database is not there: start it, or mend the host and port in "
        "PADDOCK_CLUSTER_DATABASE; what needs it is refused, and sessions go on"
    )
    await asyncio.to_thread(postgres.server.start)
    await node.places.claim(claim("a"))


async def test_a_server_that_is_killed_has_all_that_was_confirmed(
    postgres: FreshDatabase, node: StoreNode
) -> None:
    for number in range(5):
        await node.places.claim(claim(f"s{number}"))
    await asyncio.to_thread(postgres.server.kill)
    await refused(node)
    await asyncio.to_thread(postgres.server.start)
    assert len(await node.sessions()) == 5
    assert await usage_of(node.database) == await counted_anew(node.database)


async def test_a_server_that_stands_still_is_given_up_in_time(
    postgres: FreshDatabase, node: StoreNode
) -> None:
    async with opened(postgres.dsn, SHORT) as database:
        tested = StoreNode(database, *_with(node, database))
        await tested.sessions()
        postgres.server.pause()
        said = await asyncio.gather(*(refused(tested) for _ in range(6)))
        assert set(said) == {explained(TimeoutError())}
        postgres.server.resume()
        await tested.places.claim(claim("a"))


async def test_a_read_only_database_says_so_and_is_used_again(
    postgres: FreshDatabase, node: StoreNode
) -> None:
    name = postgres.name
    await asyncio.to_thread(
        postgres.sql, f"ALTER DATABASE {name} SET default_transaction_read_only = on"
    )
    await node.database.close()
    await node.database.open()
    assert "is read-only, as a standby is" in await refused(node)
    # Reading goes on.
    assert await node.database.transaction(_one) == 1
    postgres.server.sql(f"ALTER DATABASE {name} RESET default_transaction_read_only")
    # The connections that led to it are not used again.
    await node.places.claim(claim("a"))


async def _one(connection: Any) -> Any:
    return await connection.fetchval("SELECT 1")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("53100", "has no disk space left: make room on its server"),
        ("53300", "has no connection left"),
        ("57P03", "is starting up, or shutting down"),
        ("57P01", "has ended our connection"),
        ("42501", "refuses this to our user"),
    ],
)
async def test_what_the_server_refuses_is_said_with_its_remedy(
    node: StoreNode, postgres: FreshDatabase, state: str, words: str
) -> None:
    await asyncio.to_thread(
        postgres.sql,
        "CREATE FUNCTION paddock.refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '{state}'; END $$;"
        " CREATE TRIGGER refuse BEFORE INSERT ON paddock.places"
        " EXECUTE FUNCTION paddock.refuse()",
    )
    assert words in await refused(node)
    await asyncio.to_thread(postgres.sql, "DROP TRIGGER refuse ON paddock.places")
    await node.places.claim(claim("a"))
    assert await usage_of(node.database) == await counted_anew(node.database)


async def test_a_wrong_password_and_a_database_that_is_not_there(
    postgres: FreshDatabase, node: StoreNode, tmp_path: Path
) -> None:
    password = postgres.server.password_file.read_text().strip()
    bare = postgres.dsn.replace(f":{password}@", "@")
    file = tmp_path / "password"
    file.write_text("wrong\n")
    for access, words in (
        (Access(CLUSTER, bare, file), "refuses our name or password: see PADDOCK_CLUSTER_DATABASE"),
        (
            Access(CLUSTER, bare, tmp_path / "none"),
            f"{tmp_path}/none: No such file",
        ),
        (
            Access(CLUSTER, postgres.dsn.replace(postgres.name, "nowhere")),
            "does not exist on that server",
        ),
    ):
        database = ClusterDatabase(access)
        await database.open()
        with pytest.raises((ClusterUnavailableError, ConfigError)) as caught:
            await database.check()
        assert words in str(caught.value)
        await database.close()
    file.write_text(f"{password}\n")
    database = ClusterDatabase(Access(CLUSTER, bare, file))
    await database.open()
    await database.check()
    await database.close()


async def test_another_clusters_database_and_other_schemas_are_refused(
    postgres: FreshDatabase, node: StoreNode
) -> None:
    newest = schema.migrations()[-1].version

    async def check(cluster: str = CLUSTER) -> str:
        database = ClusterDatabase(Access(cluster, postgres.dsn))
        await database.open()
        try:
            await database.check()
        except ConfigError as error:
            return str(error)
        finally:
            await database.close()
        return ""

    assert await check() == ""
    assert await check("green") == (
        "the cluster's database is the one of the cluster 'blue', not of 'green': mend"
        " PADDOCK_CLUSTER or PADDOCK_CLUSTER_DATABASE"
    )
    sql = postgres.sql
    # A later version whose tables this program may use, and one whose tables it may not.
    await asyncio.to_thread(sql, f"INSERT INTO paddock.migrations VALUES (98, {newest})")
    assert await check() == ""
    await asyncio.to_thread(sql, "INSERT INTO paddock.migrations VALUES (99, 99)")
    assert "has schema 99, for programs that know 99" in await check()
    # A node that runs meanwhile writes nothing by new connections, either.
    await node.database.close()
    await node.database.open()
    assert "install the version that the cluster's other machines have" in await refused(node)
    await asyncio.to_thread(sql, "DROP SCHEMA paddock CASCADE")
    assert await check() == (
        "the cluster's database has no tables of a cluster: run `paddock cluster init`"
    )


async def test_migrations_at_once_are_made_once_and_all_or_nothing(
    postgres: FreshDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def migrate(new: bool = True) -> list[int]:
        async with administering(Access(CLUSTER, postgres.dsn)) as connection:
            return await schema.migrate(connection, CLUSTER, new=new)

    with pytest.raises(ConfigError, match="paddock cluster init"):
        await migrate(new=False)
    ours = [each.version for each in schema.migrations()]
    done = await asyncio.gather(*(migrate() for _ in range(4)))
    assert sorted(done) == [[], [], [], ours]
    broken = schema.Migration(ours[-1] + 1, 1, "CREATE TABLE half (); SELECT 1 / 0")
    monkeypatch.setattr(schema, "migrations", lambda: [*_MIGRATIONS, broken])
    with pytest.raises(ClusterUnavailableError, match="division by zero"):
        await migrate(new=False)
    good = schema.Migration(ours[-1] + 1, 1, "CREATE TABLE half ()")
    monkeypatch.setattr(schema, "migrations", lambda: [*_MIGRATIONS, good])
    assert await migrate(new=False) == [good.version]


_MIGRATIONS = schema.migrations()


def test_each_migration_has_its_number_and_what_programs_must_know() -> None:
    versions = [each.version for each in _MIGRATIONS]
    assert versions == list(range(1, len(versions) + 1))
    assert all(1 <= each.programs <= each.version for each in _MIGRATIONS)


def _errors() -> Iterator[tuple[BaseException, str]]:
    yield ConnectionResetError(), "can't be reached, or has closed the connection"
    yield asyncpg.TargetServerAttributeNotMatched(""), "list all servers"
    yield asyncpg.QueryCanceledError(""), "is too slow"
    yield asyncpg.DeadlockDetectedError(""), "because of others' changes"
    yield asyncpg.DataError("odd\nlines"), "failed with DataError: odd lines;"


@pytest.mark.parametrize(("error", "words"), list(_errors()))
def test_each_error_is_one_line(error: BaseException, words: str) -> None:
    assert words in explained(error)
    assert "\n" not in explained(error)


def test_several_servers_are_asked_for_the_one_that_writes() -> None:
    several = pool._options(Access(CLUSTER, "postgresql://u@one,two/db"), 1.0)
    assert several["target_session_attrs"] == "read-write"
    chosen = "postgresql://u@one,two/db?target_session_attrs=any"
    assert "target_session_attrs" not in pool._options(Access(CLUSTER, chosen), 1.0)
    assert "target_session_attrs" not in pool._options(Access(CLUSTER, "postgresql://u@one/db"), 1)
