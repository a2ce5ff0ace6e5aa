"""Creation and removal beside peers, one sandbox at a time."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from images.progress import step
from tests.bench.comparison import OURS, Row
from tests.bench.peers.installed import ENGINE, LLM_SANDBOX, SWE_REX, Installed
from tests.bench.peers.interval import Turns
from tests.bench.peers.turns import Competing, Turn, cpu_of, row
from tests.bench.plane import Plane

LEVELS = ("low", "medium", "high")
WARM_LEVELS = ("low", "medium")
WARM_SETTINGS = {
    "PADDOCK_WARM_SANDBOXES": str(len(WARM_LEVELS)),
    "PADDOCK_WARM_LEAST": '{"low": 1, "medium": 1}',
}
BRIDGE = "Docker on a bridge"


class Life(NamedTuple):
    """One sandbox: seconds until it was there and until its first result, and for its removal."""

    begun: Turn
    removed: Turn


Lives = Mapping[str, list[Life]]


def ours(level: str) -> str:
    """The name of Paddock's contender that creates sessions of this level."""
    return f"{OURS}, {level}"


def cold_contenders(plane: Plane, installed: Mapping[str, Installed]) -> dict[str, Installed]:
    """Paddock at each level, the engine with and without a network, and the peers."""
    _, docker_python, docker_options = installed[ENGINE]
    bridge = Installed("docker", docker_python, docker_options._replace(network="bridge"))
    others = {name: each for name, each in installed.items() if name != OURS}
    return _at_levels(plane, installed[OURS], LEVELS, "cold") | others | {BRIDGE: bridge}


def warm_contenders(plane: Plane, installed: Mapping[str, Installed]) -> dict[str, Installed]:
    """Paddock at the levels for which sandboxes wait, and the engine."""
    warm = _at_levels(plane, installed[OURS], WARM_LEVELS, "warm")
    return warm | {ENGINE: installed[ENGINE]}


def _at_levels(
    plane: Plane, paddock: Installed, levels: tuple[str, ...], start: str
) -> dict[str, Installed]:
    options = paddock.options._replace(url=plane.url, key=plane.key, start=start)
    return {
        ours(level): paddock._replace(options=options._replace(level=level)) for level in levels
    }


async def cold_lives(competing: Competing, rounds: int) -> Lives:
    """Creations where nothing waits."""
    step("create and remove, beside peers …")
    return await competing.rounds(rounds, lambda name: _life(competing, name))


async def warm_lives(plane: Plane, competing: Competing, rounds: int) -> Lives:
    """Creations that find a sandbox waiting.

    Each turn begins when all of them wait again: their starts would disturb it.
    """
    step("create and remove with sandboxes that wait, beside the engine …")

    async def turn(name: str) -> Life:
        for level in WARM_LEVELS:
            await plane.waits(level)
        return await _life(competing, name)

    return await competing.rounds(rounds, turn)


async def _life(competing: Competing, name: str) -> Life:
    accounts = competing.accounts[name]
    before = await asyncio.to_thread(accounts.seconds)
    begun = await competing.ask(name, "create")
    if not begun:
        return Life(Turn([]), Turn([]))
    *_, container = await competing.ask(name, "containers")
    await asyncio.to_thread(accounts.add, container)
    after = await asyncio.to_thread(accounts.seconds)
    accounts.forget(container)
    cpu = None if before is None or after is None else after - before
    return Life(Turn(begun, cpu), Turn(await competing.ask(name, "remove")))


def rows(cold: Lives, warm: Lives) -> Iterator[Row]:
    """All rows about creation and removal."""
    first = "create → first result"
    # The peers have nothing that waits: theirs are the cold figures.
    waited = {**cold, **warm}
    for level in LEVELS:
        yield row(f"create, {level}", _beside(cold, level, _created))
    yield row(first, _beside(cold, "medium", _first_result))
    for level in WARM_LEVELS:
        yield row(f"create, {level}, warm", _beside(waited, level, _created))
        yield row(f"{first}, {level}, warm", _beside(waited, level, _first_result))
    for level in ("medium", "high"):
        yield row(f"remove, {level}", _beside(cold, level, _removed))
    yield row(f"CPU: {first}", _beside(cold, "medium", _cpu))


def _beside(lives: Lives, level: str, figures: Callable[[list[Life]], Turns]) -> dict[str, Turns]:
    """Paddock at a level, and those that have the same kind of network."""
    open_network = level == "high"
    sources = {OURS: ours(level), ENGINE: BRIDGE if open_network else ENGINE, SWE_REX: SWE_REX}
    if not open_network:
        sources[LLM_SANDBOX] = LLM_SANDBOX
    return {name: figures(lives[source]) for name, source in sources.items() if source in lives}


def _created(lives: list[Life]) -> Turns:
    return [life.begun.said[:1] for life in lives]


def _first_result(lives: list[Life]) -> Turns:
    return [life.begun.said[1:] for life in lives]


def _removed(lives: list[Life]) -> Turns:
    return [life.removed.said for life in lives]


def _cpu(lives: list[Life]) -> Turns:
    return cpu_of([life.begun for life in lives], lambda _: 1)
