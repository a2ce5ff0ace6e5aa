"""The chaos run, with one kill of each operation: nothing is lost, nothing is left."""

import random
from pathlib import Path

import pytest

from orchestrator.ground.fault_points import FaultPoint
from tests.chaos.in_cluster import in_cluster
from tests.chaos.run import Kill, chaos

# The points at which most is half done.
KILLS = [
    Kill(FaultPoint.CREATE_PART_OPENED, 9),
    Kill(FaultPoint.SPAWN_ENDING),
    Kill(FaultPoint.EXEC_REPORTED),
    Kill(FaultPoint.TERMINAL_STARTED),
    Kill(FaultPoint.LEVEL_REMOVED),
    Kill(FaultPoint.REFINE_ENDED),
    Kill(FaultPoint.REFINE_COMPARED, 2),
    Kill(FaultPoint.TURN_DRIVEN),
    Kill(FaultPoint.COMMIT_APPLIED, 2),
    Kill(FaultPoint.CLOSE_FROZEN),
    Kill(FaultPoint.CLOSE_RECORDED),
    Kill(FaultPoint.PURGE_UNMOUNTED),
    Kill(FaultPoint.VOLUME_MADE),
    Kill(FaultPoint.START_SWEPT),
]

# Every step of what copies workspaces.
COPIES = [
    Kill(point)
    for point in FaultPoint
    if point.partition(".")[0] in ("snapshot", "fork", "template")
]

AHEAD = [Kill(FaultPoint.AHEAD_FILLED), Kill(FaultPoint.AHEAD_TAKEN)]

SUSPENSIONS = [Kill(FaultPoint.SUSPEND_RECORDED), Kill(FaultPoint.RESTORE_STARTED)]

# Steps of a place from its claim to its end, for a node of a cluster. `make chaos` has all points.
IN_CLUSTER = [
    Kill(FaultPoint.CREATE_CLAIMED),
    Kill(FaultPoint.CREATE_RECORDED),
    Kill(FaultPoint.CLOSE_RECORDED),
    Kill(FaultPoint.OUTBOX_DELIVERED),
    Kill(FaultPoint.START_COMPARED),
]


@pytest.mark.parametrize(
    "kills",
    [KILLS, COPIES, AHEAD, SUSPENSIONS],
    ids=["operations", "copies", "ahead", "suspensions"],
)
async def test_a_short_run_loses_and_leaves_nothing(
    tmp_path: Path, sandbox_image: str, kills: list[Kill]
) -> None:
    settings = {"PADDOCK_IMAGE": sandbox_image, **kills[0].settings}
    done = await chaos(tmp_path / "state", kills, print, random.Random(1), None, None, **settings)
    assert done.complaints == []
    assert done.missed == []
    assert done.kills.total() == len(kills)


async def test_a_node_and_its_cluster_agree_after_each_kill(
    tmp_path: Path, sandbox_image: str
) -> None:
    """Each id lives once, what the cluster counts is what there is, and all of it is told."""
    async with in_cluster(tmp_path) as cluster:
        state_dir, chance = tmp_path / "state", random.Random(1)
        settings = {"PADDOCK_IMAGE": sandbox_image}
        done = await chaos(state_dir, IN_CLUSTER, print, chance, None, cluster, **settings)
    assert done.complaints == []
    assert done.missed == []
    assert done.kills.total() == len(IN_CLUSTER)
