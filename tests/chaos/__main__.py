"""Kills the control plane again and again, and checks what is left: `python -m tests.chaos`."""

import argparse
import asyncio
import os
import random
import sys
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path

from docker.errors import DockerException

from images.progress import detail, failure, step
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.settings.settings import Settings
from tests.chaos.in_cluster import ONLY_IN_CLUSTER, in_cluster
from tests.chaos.moving import Loss, lose_all, losses, moving
from tests.chaos.own_engine import own_engine
from tests.chaos.run import ROOM_FOR_FEW, WAITING, Chaos, Kill, chaos

# Points that an operation passes more than once, and how often.
VISITS = {
    FaultPoint.START_TAKEN_UP: 3,
    FaultPoint.CREATE_PART_OPENED: 14,
    FaultPoint.SPAWN_RECORDED: 3,
    FaultPoint.SPAWN_JOINED: 3,
    FaultPoint.SPAWN_ENDING: 2,
    FaultPoint.EXEC_REPORTED: 3,
    FaultPoint.LEVEL_ENDED: 2,
    FaultPoint.LEVEL_REMOVED: 2,
    FaultPoint.LEVEL_STARTED: 2,
    FaultPoint.LEVEL_STORED: 2,
    FaultPoint.FILE_OPENED: 2,
    FaultPoint.FILE_PUSHED: 2,
    FaultPoint.FILE_COMMITTED: 2,
    FaultPoint.REFINE_MISSED: 2,
    FaultPoint.REFINE_ENDED: 2,
    FaultPoint.REFINE_REQUESTED: 2,
    FaultPoint.REFINE_COUNTED: 3,
    FaultPoint.REFINE_COMPARED: 3,
    FaultPoint.TURN_RECORDED: 2,
    FaultPoint.TURN_OPERATED: 4,
    FaultPoint.TURN_DRIVEN: 2,
    FaultPoint.TURN_ENDED: 2,
    FaultPoint.COMMIT_ASKED: 4,
    FaultPoint.COMMIT_PREPARED: 2,
    FaultPoint.COMMIT_RECORDED: 2,
    FaultPoint.COMMIT_APPLIED: 2,
    FaultPoint.COMMIT_ENDED: 2,
    FaultPoint.CLOSE_PART_CLOSED: 14,
}
# At random moments, for each round.
_NODE_STORMS = 10


def every_kill(*, of_node: bool = False) -> Iterator[Kill]:
    """Each visit of each point once; `of_node`: those of a node of a cluster, too.

    Moves need another node, and have losses of their own.
    """
    for point in FaultPoint:
        if point.partition(".")[0] in ("arrive", "leave"):
            continue
        if point in ONLY_IN_CLUSTER and not of_node:
            continue
        for visit in range(1, VISITS.get(point, 1) + 1):
            yield Kill(point, visit)


async def _run(
    directory: Path,
    kills: list[Kill],
    of_node: list[Kill],
    of_moves: list[Loss],
    engines: int,
    chance: random.Random,
) -> Chaos:
    """The kills on the host's engine, of a node, of two nodes, then of an engine of its own."""
    done = Chaos()
    for number, settings in enumerate(({}, ROOM_FOR_FEW, WAITING)):
        some = [kill for kill in kills if kill.settings == settings]
        if some:
            done += await chaos(
                directory / f"state-{number}", some, detail, chance, None, None, **settings
            )
    if of_node:
        async with in_cluster(directory) as cluster:
            done += await chaos(directory / "node", of_node, detail, chance, None, cluster)
    if of_moves:
        async with moving(directory / "moves") as moves:
            done.complaints += await lose_all(moves, of_moves, detail)
            done.kills["moves"] += len(of_moves)
    if engines:
        image = os.environ.get("PADDOCK_IMAGE", Settings.model_fields["image"].default)
        async with own_engine(directory / "engine", image) as engine:
            more = [Kill(None, after="engine")] * engines
            done += await chaos(directory / "other", more, detail, chance, engine)
    return done


def main() -> int:
    """Runs it and returns the exit status: 0 if nothing was lost or left."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=2, help="how often each point (2)")
    parser.add_argument("--storms", type=int, default=60, help="kills at random moments (60)")
    parser.add_argument("--agents", type=int, default=10, help="kills of agents (10)")
    parser.add_argument(
        "--engine", type=int, default=5, help="kills of an engine of the run's own (5)"
    )
    parser.add_argument(
        "--cluster", type=int, default=1, help="how often each point of a cluster's node (1)"
    )
    parser.add_argument("--moves", type=int, default=1, help="how often each step of a move (1)")
    parser.add_argument("--only", help="only points whose name begins with this")
    parser.add_argument("--seed", type=int, help="repeats the choices of an earlier run")
    arguments = parser.parse_args()
    seed = random.randrange(2**32) if arguments.seed is None else arguments.seed
    chance = random.Random(seed)
    kills = [kill for _ in range(arguments.rounds) for kill in every_kill()]
    of_node = [kill for _ in range(arguments.cluster) for kill in every_kill(of_node=True)]
    of_node = [kill for kill in of_node if not kill.settings]
    of_moves = losses() * arguments.moves
    if arguments.only:
        of_moves = [loss for loss in of_moves if loss.point.startswith(arguments.only)]
        kills, of_node = (
            [kill for kill in some if (kill.point or "").startswith(arguments.only)]
            for some in (kills, of_node)
        )
    of_node += [Kill(None)] * (arguments.cluster * _NODE_STORMS)
    kills += [Kill(None)] * arguments.storms + [Kill(None, after="agent")] * arguments.agents
    counts = f"{len(kills)} kills, {len(of_node)} of a node, {len(of_moves)} losses in a move"
    counts += f", {arguments.engine} kills of an engine"
    step(f"{counts}, seed {seed}")
    with tempfile.TemporaryDirectory(prefix="paddock-chaos-") as directory:
        try:
            done = asyncio.run(
                _run(Path(directory), kills, of_node, of_moves, arguments.engine, chance)
            )
        except (AssertionError, DockerException, OSError) as error:
            traceback.print_exception(error)  # the check that failed has no other words
            failure(str(error) or repr(error))
            return 1
    for line in done.lines:
        print(line)
    for kill in done.missed:
        detail(f"not reached: {kill}")
    for complaint in done.complaints:
        failure(complaint)
    step("failed" if done.complaints else "nothing is lost, nothing is left")
    return 1 if done.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
