"""Two nodes, of which one is lost at a step of a move: one life, with all that it has."""

from pathlib import Path

import pytest

from orchestrator.ground.fault_points import FaultPoint
from tests.chaos.moving import Loss, lose_all, losses, moving

# One of each way, where most is half done. `make chaos` has all points in all ways.
SHORT = [
    Loss(FaultPoint.LEAVE_SENT, "kill"),
    Loss(FaultPoint.ARRIVE_OFFERED, "kill", drains=True),
    Loss(FaultPoint.LEAVE_SENT, "forget"),
    Loss(FaultPoint.ARRIVE_OFFERED, "stop"),
    Loss(FaultPoint.LEAVE_PACKED, "cut"),
    Loss(FaultPoint.CREATE_CLAIMED, "forget"),
]


async def test_whoever_is_lost_in_a_move_leaves_one_life(
    tmp_path: Path, sandbox_image: str
) -> None:
    async with moving(tmp_path, PADDOCK_IMAGE=sandbox_image) as moves:
        assert await lose_all(moves, SHORT, print) == []


@pytest.mark.whole
async def test_at_every_step_in_every_way(tmp_path: Path, sandbox_image: str) -> None:
    async with moving(tmp_path, PADDOCK_IMAGE=sandbox_image) as moves:
        assert await lose_all(moves, losses(), print) == []
