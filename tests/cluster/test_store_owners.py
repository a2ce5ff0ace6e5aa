"""An owner's content in a cluster: exported from all nodes, and erased on all, and in the database.

Nodes are control planes in this process; the database is PostgreSQL.
"""

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.cluster.postgres.shipped import chain
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database_file import StoreError
from orchestrator.operate.backups import backup
from orchestrator.record.audit.recorded_event import full_event
from orchestrator.rules.policy import levels
from orchestrator.settings.settings import Settings
from paddock.audit.chain import Chain, Verdict, verify_chain
from tests.api.conftest import Api
from tests.support.cluster_store import make_schema, opened, set_lease
from tests.support.owned import CANARY, REASON, has_itself, holding, used
from tests.support.postgres import FreshDatabase
from tests.support.shared_nodes import node_settings, shared_node
from tests.support.until import until

OWNER = "/api/owners/ci"
HIGH = Path(levels.__file__).with_name("levels") / "high.toml"
DURABLE = "durable"


@pytest_asyncio.fixture
async def dsn(postgres: FreshDatabase) -> str:
    await make_schema(postgres.dsn)
    return postgres.dsn


@pytest.fixture
def both(dsn: str, tmp_path: Path) -> Iterator[list[Settings]]:
    """Settings of two nodes whose level `durable` copies chains."""
    text = HIGH.read_text().replace("rank = 300", "rank = 290")
    (tmp_path / f"{DURABLE}.toml").write_text(f'durability = "cluster"\n{text}')
    more: dict[str, Any] = {"levels_dir": tmp_path, "hook_prefixes": ("http://127.0.0.1:9/",)}
    with node_settings(dsn, "one", **more) as one, node_settings(dsn, "two", **more) as two:
        yield [one, two]


async def has_keys(one: Api, two: Api) -> tuple[str, str]:
    """The keys `ci` and `other`, which both nodes know."""
    made = [
        await one.json("POST", "/api/keys", status=201, json={"name": name})
        for name in ("ci", "other")
    ]
    await until(lambda: two.plane.keys.named("other") is not None)
    return made[0]["key"], made[1]["key"]


async def all_ended(postgres: FreshDatabase) -> None:
    """The database has been told that no session lives."""
    live = "SELECT count(*) FROM paddock.records WHERE ended_at IS NULL"
    await until(lambda: postgres.sql(live).strip() == "0")


async def copied(dsn: str, session_key: str) -> Verdict:
    """Whether the cluster's copy of a chain is intact."""
    found = Chain()
    async with opened(dsn) as database:
        async for event in chain(database, session_key):
            found.follow(full_event(event.body, event.prev_hash, event.hash))
    return found.verdict()


async def test_nothing_is_left_on_any_node_or_in_the_database(
    postgres: FreshDatabase, both: list[Settings], dsn: str, tmp_path: Path
) -> None:
    async with shared_node(both[0]) as one, shared_node(both[1]) as two:
        ci, other = await has_keys(one, two)
        await has_itself(one, ci)
        await used(one, "here", ci, permission_level=DURABLE)
        await used(two, "there", ci, permission_level=DURABLE)
        await used(two, "kept", other, permission_level=DURABLE)
        await all_ended(postgres)
        before = await two.json("GET", "/api/sessions/there/audit/verify")
        kept = await (await two.call("GET", "/api/sessions/kept/audit/export")).text()
        assert all([*holding(each.state_dir)] for each in both)
        assert CANARY in postgres.dump()

        made = await one.json("POST", f"{OWNER}/export", json={})
        assert ([each["node"] for each in made["files"]], made["missing"]) == (["one", "two"], [])
        names = set()
        for file in made["files"]:
            with tarfile.open(file["file"]) as archive:
                names |= {*archive.getnames()}
        assert {"memory.jsonl", "hooks.jsonl", "workspaces/here", "workspaces/there"} <= names

        done = await one.json("POST", f"{OWNER}/erase", json=REASON)
        assert (done["sessions"], done["memory"], done["secrets"]) == (2, 2, 1)
        assert (done["hooks"], done["missing"]) == (1, [])
        # What another owner has is all that is left, and is as it was.
        assert await (await two.call("GET", "/api/sessions/kept/audit/export")).text() == kept
        assert postgres.sql("SELECT count(*) FROM paddock.memory").strip() == "1"
        await one.json("POST", "/api/owners/other/erase", json=REASON)
        for each in both:
            assert [*holding(each.state_dir)] == []
        assert CANARY not in postgres.dump()
        target = tmp_path / "backup.tar"
        backup.take(both[1], target, lambda *_: None, workspaces=True)
        assert CANARY.encode() not in target.read_bytes()

        after = await two.json("GET", "/api/sessions/there/audit/verify")
        assert (after["ok"], after["hash"]) == (True, before["hash"])
        keys = postgres.sql("SELECT DISTINCT session_key FROM paddock.shipped").split()
        found = [await copied(dsn, each) for each in keys]
        assert ([each.ok for each in found], len(found)) == ([True] * 3, 3)
        assert before["hash"] in {each.hash for each in found}
        # Each node has the order on record, with the reason and who has asked.
        for node in (one, two):
            (*_, event) = (await node.json("GET", "/api/audit?operation=owner.erase"))["items"]
            assert (event["args"]["reason"], event["actor"]) == (REASON["reason"], "admin")


async def test_a_node_that_is_away_erases_its_part_when_it_is_back(
    postgres: FreshDatabase, both: list[Settings], dsn: str
) -> None:
    async with shared_node(both[0]) as one:
        async with shared_node(both[1]) as two:
            ci, _ = await has_keys(one, two)
            await used(two, "there", ci, permission_level=DURABLE)
            await used(two, "plain", ci)
            await all_ended(postgres)
            before = await two.json("GET", "/api/sessions/there/audit/verify")
        async with opened(dsn) as database:
            await set_lease(database, "two", "-1 s")
        made = await one.json("POST", f"{OWNER}/export", json={})
        assert ([each["node"] for each in made["files"]], made["missing"]) == (["one"], ["two"])
        with tarfile.open(made["files"][0]["file"]) as archive:
            (name,) = [each for each in archive.getnames() if each.startswith("copied/")]
            data = archive.extractfile(name)
            assert data is not None
            assert verify_chain(data.read().decode().splitlines()).hash == before["hash"]

        done = await one.json("POST", f"{OWNER}/erase", json=REASON)
        assert (done["sessions"], done["missing"]) == (0, ["two"])
        # What the database has of it is erased at once, what the machine has is not.
        assert CANARY not in postgres.dump()
        assert [*holding(both[1].state_dir)]
        async with shared_node(both[1]) as two:
            left = "SELECT count(*) FROM paddock.owner_parts WHERE result IS NULL"
            await until(lambda: postgres.sql(left).strip() == "0")
            assert [*holding(both[1].state_dir)] == []
            after = await two.json("GET", "/api/sessions/there/audit/verify")
            assert (after["ok"], after["hash"]) == (True, before["hash"])
        assert CANARY not in postgres.dump()


async def test_sessions_that_live_elsewhere_and_a_database_that_is_away_stop_it(
    postgres: FreshDatabase, both: list[Settings]
) -> None:
    async with shared_node(both[0]) as one, shared_node(both[1]) as two:
        ci, _ = await has_keys(one, two)
        await used(one, "here", ci)
        await two.session(id="lives", key=ci)
        for what, body in (("erase", REASON), ("export", {})):
            found = await one.problem(409, "conflict", "POST", f"{OWNER}/{what}", json=body)
            assert "lives on two" in found["detail"]
        odd = {"reason": "nul \0"}
        await one.problem(400, "validation_error", "POST", f"{OWNER}/erase", json=odd)
        await two.json("DELETE", "/api/sessions/lives", key=ci)
        postgres.server.stop()
        for what, body in (("erase", REASON), ("export", {})):
            path = f"{OWNER}/{what}"
            await one.problem(503, "cluster_unavailable", "POST", path, json=body)
        assert (await one.json("GET", "/api/audit?operation=owner.erase"))["items"] == []
        assert [*holding(both[0].state_dir)]
        postgres.server.start()


async def test_a_start_asks_other_nodes_after_a_kill(
    postgres: FreshDatabase, both: list[Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shared_node(both[1]) as two:
        async with shared_node(both[0]) as one:
            ci, _ = await has_keys(one, two)
            await used(two, "there", ci)
            await all_ended(postgres)

            def reached(point: FaultPoint) -> None:
                if point is FaultPoint.ERASE_RECORDED:
                    raise StoreError("the disk is gone")

            monkeypatch.setattr(FaultPoint, "reached", reached)
            assert (await one.call("POST", f"{OWNER}/erase", json=REASON)).status >= 500
            monkeypatch.undo()
            assert [*holding(both[1].state_dir)]
        async with shared_node(both[0]):
            await until(lambda: [*holding(both[1].state_dir)] == [])
            await until(lambda: CANARY not in postgres.dump())
