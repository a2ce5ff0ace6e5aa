"""Volumes of one name at two nodes of a cluster in memory: one of them has it, whatever fails."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.limits import KeyLimits
from orchestrator.ground.store.database_file import StoreError
from orchestrator.host.workspace.storage import Storage, StorageError
from orchestrator.rules.access.keys import Principal, Role
from tests.api.test_moves import Machine
from tests.support.cluster_in_memory import Cluster

ANN = Principal("ann", Role.OPERATOR)
SIZE = 1 << 20


@pytest.fixture
async def machines(state_dir: Path) -> AsyncIterator[list[Machine]]:
    cluster = Cluster()
    found = [Machine(state_dir, name, cluster) for name in ("one", "two")]
    for each in found:
        await each.start()
    yield found
    for each in found:
        if each.plane is not None:
            await each.plane.close()
        await each.agents.close()


def cluster_of(machines: list[Machine]) -> Cluster:
    return machines[0].cluster


def planes(machines: list[Machine]) -> list[ControlPlane]:
    return [each.plane for each in machines if each.plane is not None]


async def make(plane: ControlPlane, name: str = "data") -> Any:
    return await plane.volumes.create(ANN, name, SIZE, KeyLimits())


async def taken(machines: list[Machine]) -> list[tuple[str, str]]:
    """The names in the cluster, each with its node."""
    for plane in planes(machines):
        await plane.outbox.delivered()
    names = cluster_of(machines).names.values()
    return sorted((name.name, node) for name, node in names)


async def test_two_nodes_that_make_one_name_at_once_make_one(machines: list[Machine]) -> None:
    results = await asyncio.gather(*map(make, planes(machines)), return_exceptions=True)
    assert [type(each) for each in results if isinstance(each, Exception)] == [ConflictError]
    ((name, node),) = await taken(machines)
    assert name == "data"
    one, two = planes(machines)
    holder, other = (one, two) if node == "one" else (two, one)
    await holder.volumes.remove(ANN, "ann", "data")
    await make(other)
    assert len(await taken(machines)) == 1


async def test_what_could_not_be_made_has_no_name(
    machines: list[Machine], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = planes(machines)
    cluster = cluster_of(machines)
    cluster.loses_answers = True
    with pytest.raises(ClusterUnavailableError):
        await make(one)
    cluster.loses_answers = False
    assert not await taken(machines)

    async def full(*_: object) -> None:
        raise StorageError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(Storage, "prepare", full)
        with pytest.raises(StorageError):
            await make(one)
    assert not await taken(machines)
    await make(two)


@pytest.mark.parametrize("point", [FaultPoint.VOLUME_NAMED, FaultPoint.VOLUME_RECORDED])
async def test_the_next_start_frees_the_name_that_a_kill_has_left(
    machines: list[Machine], monkeypatch: pytest.MonkeyPatch, point: FaultPoint
) -> None:
    one, two = planes(machines)
    killed = machines[0]

    def reached(self: FaultPoint) -> None:
        if self is point:
            killed.dies_after(0)
            killed.plane = None
            raise StoreError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(FaultPoint, "reached", reached)
        with pytest.raises(StoreError):
            await make(one)
    with pytest.raises(ConflictError, match="on the node one"):
        await make(two)
    await one.close()  # it writes nothing any more
    await killed.start()
    assert not await taken(machines)
    await make(two)


async def test_what_a_node_had_before_keeps_its_name(machines: list[Machine]) -> None:
    """As of a node that was given up and returns, or one of an earlier version."""
    one, two = planes(machines)
    for name in ("data", "both"):
        await make(one, name)
    cluster_of(machines).names.clear()
    await make(two, "both")
    await one.close()
    await machines[0].start()
    assert await taken(machines) == [("both", "two"), ("data", "one")]
    # It has its own, which the cluster does not know; its removal frees no other's name.
    one, two = planes(machines)
    await one.volumes.remove(ANN, "ann", "both")
    assert await taken(machines) == [("both", "two"), ("data", "one")]
    with pytest.raises(ConflictError, match="on the node one"):
        await make(two)
