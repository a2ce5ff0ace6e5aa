"""Places are remembered, bounded, and asked for once."""

import asyncio
from collections.abc import Collection, Mapping

import pytest

from gateway.members import Members
from gateway.routing import Routes
from orchestrator.cluster.directory import Hold, Where
from orchestrator.ground.errors import ClusterUnavailableError, NodeUnavailableError
from tests.support.fake_cluster import FakeDirectory, no_tls, node


class _Slow(FakeDirectory):
    def __init__(self) -> None:
        super().__init__()
        self.go_on = asyncio.Event()
        self.statements: list[list[str]] = []

    async def places_of(self, session_ids: Collection[str]) -> Mapping[str, Where]:
        self.statements.append([*session_ids])
        await self.go_on.wait()
        return await super().places_of(session_ids)


async def _routes(directory: FakeDirectory, most: int = 100) -> Routes:
    for name in ("one", "two"):
        directory.known[name] = node(name)
    members = Members(directory, no_tls)
    await members.refresh()
    return Routes(directory, members, most)


async def test_those_used_last_are_remembered() -> None:
    directory = FakeDirectory()
    routes = await _routes(directory, most=2)
    for session_id in ("a", "b", "c"):
        directory.places[session_id] = ("one", Hold.LIVE)
    for session_id in ("a", "b", "a", "c", "a", "b"):
        member, _ = await routes.node_of(session_id)
        assert member is not None
    assert len(routes) == 2
    assert directory.looked_up == {"a": 1, "b": 2, "c": 1}
    await routes.close()


async def test_who_asks_at_the_same_time_asks_once() -> None:
    directory = _Slow()
    routes = await _routes(directory)
    directory.places["web"] = ("one", Hold.LIVE)
    asking = [asyncio.ensure_future(routes.node_of("WEB")) for _ in range(20)]
    await asyncio.sleep(0)
    asking.pop().cancel()
    directory.go_on.set()
    found = await asyncio.gather(*asking)
    assert {member.name for member, _ in found if member is not None} == {"one"}
    assert directory.looked_up == {"web": 1}
    await routes.close()


async def test_what_is_asked_for_meanwhile_is_in_one_statement() -> None:
    directory = _Slow()
    routes = await _routes(directory)
    for number in range(50):
        directory.places[f"s{number}"] = ("one", Hold.LIVE)
    asking = [asyncio.ensure_future(routes.node_of(f"s{number}")) for number in range(60)]
    await asyncio.sleep(0)
    asking[40].cancel()
    directory.go_on.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert isinstance(found[40], asyncio.CancelledError)
    names = [
        None if isinstance(each, BaseException) or each[0] is None else each[0].name
        for each in found
    ]
    assert names == ["one"] * 40 + [None] + ["one"] * 9 + [None] * 10
    assert sum(map(len, directory.statements)) == 60
    assert len(directory.statements) <= 3
    # There is always a next one.
    directory.away = True
    asked = [routes.look_up(f"t{number}") for number in range(10)]
    refused = await asyncio.gather(*asked, return_exceptions=True)
    assert all(isinstance(each, ClusterUnavailableError) for each in refused)
    directory.away = False
    assert await routes.look_up("s1") == Where("one", Hold.LIVE)
    await routes.close()


async def test_only_living_sessions_are_remembered() -> None:
    """Another gateway may create the id elsewhere, once its workspace is purged."""
    directory = FakeDirectory()
    routes = await _routes(directory)
    directory.places["kept"] = ("two", Hold.WORKSPACE)
    directory.places["old"] = ("one", Hold.RECORD)
    for session_id, name in (("kept", "two"), ("old", "one")):
        member, remembered = await routes.node_of(session_id)
        assert member is not None
        assert (member.name, remembered) == (name, False)
    assert await routes.node_of("unknown") == (None, False)
    assert len(routes) == 0
    await routes.close()


async def test_a_node_that_is_lost_is_asked_for_again() -> None:
    directory = FakeDirectory()
    directory.known["one"] = node("one")
    directory.known["two"] = node("two")
    members = Members(directory, no_tls)
    await members.refresh()
    routes = Routes(directory, members)
    directory.places["web"] = ("one", Hold.LIVE)
    await routes.node_of("web")
    directory.dies("one")
    await members.refresh()
    with pytest.raises(NodeUnavailableError):
        await routes.node_of("web")
    directory.places["web"] = ("two", Hold.LIVE)
    member, _ = await routes.node_of("web")
    assert member is not None
    assert member.name == "two"
    await routes.close()


async def test_another_epoch_is_another_member() -> None:
    directory = FakeDirectory()
    directory.known["one"] = node("one")
    members = Members(directory, no_tls)
    await members.refresh()
    first = members.named("one")
    assert first is not None
    directory.known["one"] = node("one", epoch=2)
    await members.refresh()
    assert not first.alive
    with pytest.raises(NodeUnavailableError):
        first.upstream("paddock-api")  # type: ignore[arg-type]
    assert members.named("one") is not first
    assert members.any() is members.named("one")
    directory.known.clear()
    await members.refresh()
    assert members.any() is None
    await members.close()
