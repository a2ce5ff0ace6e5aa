"""Measures Paddock and its peers alternately, in one run."""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from images.progress import step
from tests.bench.comparison import OURS, Comparison, Row
from tests.bench.floors import Floors
from tests.bench.peers import creation
from tests.bench.peers.installed import ENGINE, Installed, install, running
from tests.bench.peers.turns import Competing, Turn, cpu_of, row
from tests.bench.plane import Plane, measured_plane

FLOOR = "floor"
_MB, _MIB = 1_000_000, 1024 * 1024
_FILE_MB = 20
_TREE_FILES, _TREE_FILE_BYTES, _FILES_A_DIRECTORY = 500, 2_000, 25
_SANDBOXES, _IN_FLIGHT = 4, 8
# The longest time that one turn of cheap operations takes; slow contenders do fewer in it.
_TURN_SECONDS, _AT_ONCE_SECONDS = 0.25, 1.0
# The level that allows any command.
_USED = "high"


class Rounds(NamedTuple):
    """The number of rounds of each kind, and of commands or lines in a turn."""

    creates: int
    warm: int
    commands: int
    at_once: int
    lines: int
    files: int
    times: int


# Together about five minutes on a quiet machine with 2 cores.
FULL = Rounds(creates=16, warm=30, commands=40, at_once=16, lines=20, files=7, times=20)
QUICK = Rounds(creates=3, warm=3, commands=4, at_once=3, lines=3, files=3, times=10)


class Bench(NamedTuple):
    """What all measurements need."""

    floors: Floors
    failed: dict[str, str]
    order: Random

    @asynccontextmanager
    async def competing(
        self, installed: Mapping[str, Installed], plane: Plane
    ) -> AsyncIterator[Competing]:
        """Contenders that run; `plane` serves those whose name is ours."""
        servers = {name: plane.pid for name in installed if name.startswith(OURS)}
        async with running(installed) as contenders:
            yield Competing(contenders, self.floors, servers, self.order, self.failed)


async def compare(
    plane: Plane, floors: Floors, machine: str, rounds: Rounds, order: Random
) -> Comparison:
    """All rows. A peer that can't be installed is absent, and the result says why.

    `order` shuffles the contenders in each round.
    """
    installed, absent = await asyncio.to_thread(install, await plane.image())
    bench = Bench(floors, absent, order)
    rows = [*await _creation(bench, plane, installed, rounds)]
    paddock = installed[OURS]
    options = paddock.options._replace(url=plane.url, key=plane.key, level=_USED)
    used = {**installed, OURS: paddock._replace(options=options)}
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
        async with bench.competing(used, plane) as competing:
            rows += await _use(competing, floors, rounds, Path(directory))
    others = [name for name in installed if name != OURS]
    return Comparison(machine, [OURS, FLOOR, *others], rows, absent)


async def _creation(
    bench: Bench, plane: Plane, installed: Mapping[str, Installed], rounds: Rounds
) -> list[Row]:
    async with bench.competing(creation.cold_contenders(plane, installed), plane) as competing:
        cold = await creation.cold_lives(competing, rounds.creates)
    async with (
        measured_plane(**creation.WARM_SETTINGS) as waiting,
        bench.competing(creation.warm_contenders(waiting, installed), waiting) as competing,
    ):
        warm = await creation.warm_lives(waiting, competing, rounds.warm)
    return list(creation.rows(cold, warm))


async def _use(competing: Competing, floors: Floors, rounds: Rounds, directory: Path) -> list[Row]:
    """Everything that is done in sandboxes that are there."""
    await _create(competing, 1)
    rows = await _commands(competing, floors, rounds)
    line = await _lines(competing, rounds)
    await _create(competing, _SANDBOXES - 1)
    memory = await _memory(competing, floors)
    rows += [*await _at_once(competing, rounds), line]
    return [*rows, *await _files(competing, rounds.files, *_inputs(directory)), memory]


async def _create(competing: Competing, count: int) -> None:
    """That many further sandboxes of each contender, whose processes are accounted for."""
    for name in competing.contenders:
        for _ in range(count):
            await competing.ask(name, "create")
        for container in await competing.ask(name, "containers"):
            await asyncio.to_thread(competing.accounts[name].add, container)


async def _commands(competing: Competing, floors: Floors, rounds: Rounds) -> list[Row]:
    """`true`, one after another, beside what the kernel alone needs in a container."""
    step("commands, beside peers …")
    container, *_ = await competing.ask(ENGINE, "containers")

    async def floor() -> Turn:
        return Turn(await asyncio.to_thread(floors.fork_true, container, rounds.times))

    def command(name: str) -> Any:
        return competing.turn(name, "run_true", times=rounds.times, seconds=_TURN_SECONDS)

    turns = await competing.rounds(rounds.commands, command, **{FLOOR: floor})
    return [
        row("exec `true`", _said(turns)),
        row("CPU: exec `true`", _cpu(turns, lambda turn: len(turn.said))),
    ]


async def _at_once(competing: Competing, rounds: Rounds) -> list[Row]:
    """`true` in all sandboxes at the same time."""
    step("commands at once, beside peers …")

    def commands(name: str) -> Any:
        limits = {"in_flight": _IN_FLIGHT, "seconds": _AT_ONCE_SECONDS}
        return competing.turn(name, "run_at_once", **limits)

    turns = await competing.rounds(rounds.at_once, commands)
    what = f"exec `true`, {_IN_FLIGHT} at once"
    rates = {
        name: [[done / seconds] for done, seconds in (turn.said for turn in each if turn.said)]
        for name, each in turns.items()
    }
    return [
        row(what, rates, unit="/s", scale=1, rate=True),
        row(f"CPU: {what}", _cpu(turns, lambda turn: turn.said[0])),
    ]


async def _lines(competing: Competing, rounds: Rounds) -> Row:
    step("lines, beside peers …")

    def lines(name: str) -> Any:
        return competing.turn(name, "lines", times=rounds.times, seconds=_TURN_SECONDS)

    return row("a line of Python", _said(await competing.rounds(rounds.lines, lines)))


async def _memory(competing: Competing, floors: Floors) -> Row:
    """The working sets of the sandboxes that had one command."""
    values = {}
    for name in competing.contenders:
        _, *idle = await competing.ask(name, "containers") or [""]
        values[name] = [[floors.working_set(container) / _MIB] for container in idle]
    return row("memory of an idle sandbox", values, unit="MiB", scale=1)


async def _files(competing: Competing, rounds: int, file: Path, tree: Path) -> list[Row]:
    """One large file, and many small ones, in both directions."""
    step("files, beside peers …")
    rows = []
    for what, kind, path in (
        (f"{_FILE_MB} MB", "file", file),
        (f"{_TREE_FILES} small files", "tree", tree),
    ):
        for way, verb in (("up", "send"), ("down", "fetch")):
            operation = f"{verb}_{kind}"
            turns = await competing.rounds(rounds, _copying(competing, operation, path))
            rows.append(row(f"{what} {way}", _said(turns)))
    return rows


def _copying(competing: Competing, operation: str, path: Path) -> Callable[[str], Any]:
    return lambda name: competing.turn(name, operation, path=str(path))


def _said(turns: Mapping[str, list[Turn]]) -> dict[str, Sequence[Sequence[float]]]:
    return {name: [turn.said for turn in each] for name, each in turns.items()}


def _cpu(
    turns: Mapping[str, list[Turn]], operations: Callable[[Turn], float]
) -> dict[str, Sequence[Sequence[float]]]:
    return {name: cpu_of(each, operations) for name, each in turns.items()}


def _inputs(directory: Path) -> tuple[Path, Path]:
    """The file and the directory that are copied: text, because one peer reads nothing else."""
    file, tree = directory / "file", directory / "tree"
    file.write_text(os.urandom(_FILE_MB * _MB // 2).hex())
    for number in range(_TREE_FILES):
        path = tree / f"part-{number // _FILES_A_DIRECTORY}" / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(os.urandom(_TREE_FILE_BYTES // 2).hex())
    return file, tree
