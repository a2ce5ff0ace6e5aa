"""Measures Paddock and its peers alternately, in one run."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from images.progress import step
from tests.bench.comparison import OURS, Comparison, Row, figure
from tests.bench.floors import Floors
from tests.bench.peers import environment
from tests.bench.peers.contender import Contender, ContenderError, contending
from tests.bench.peers.driver import Options
from tests.bench.plane import Plane
from tests.bench.rounds import Side, alternating

_ENGINE, _SWE_REX, _LLM_SANDBOX = "Docker", "SWE-ReX", "llm-sandbox"
# Paddock with sandboxes that wait for sessions: not a contender of its own, but a row.
_WARM = "Paddock, warm"
WARM_SETTINGS = {"PADDOCK_WARM_SANDBOXES": "4", "PADDOCK_WARM_LEAST": '{"medium": 2}'}
_MB, _MIB = 1_000_000, 1024 * 1024
_FILE_MB = 20
_TREE_FILES, _TREE_FILE_BYTES, _FILES_A_DIRECTORY = 500, 2_000, 25
_SANDBOXES, _IN_FLIGHT, _LINES = 4, 8, 5
# Paddock's levels: the default one for creation, and for the rest the one that allows any command.
_CREATED, _USED = "medium", "high"


class Rounds(NamedTuple):
    """The number of rounds, and of commands in a turn."""

    creates: int
    commands: int
    files: int
    times: int


FULL = Rounds(creates=8, commands=10, files=5, times=20)
QUICK = Rounds(creates=2, commands=2, files=2, times=10)


class Installed(NamedTuple):
    """What a contender needs."""

    driver: str
    python: Path
    image: str


async def compare(
    plane: Plane, warm: Plane, floors: Floors, machine: str, rounds: Rounds
) -> Comparison:
    """All rows. A peer that can't be installed is absent, and the result says why.

    `warm` has `WARM_SETTINGS`.
    """
    installed, absent = await asyncio.to_thread(install, await plane.image())
    with tempfile.TemporaryDirectory(prefix="paddock-bench-") as directory:
        async with (
            _contenders(plane, installed, _CREATED) as contenders,
            _contenders(warm, {_WARM: installed[OURS]}, _CREATED) as warmed,
        ):
            created, removed = await _Measuring(contenders + warmed, absent, rounds).creation()
            rows = [*warm_apart(created), warm_apart(removed)[0]]
        async with _contenders(plane, installed, _USED) as contenders:
            measuring = _Measuring(contenders, absent, rounds)
            in_turn = await measuring.commands()
            memory = await measuring.memory(floors)
            rows += [in_turn[0], await measuring.rates(), in_turn[1]]
            rows += [*await measuring.files(*_inputs(Path(directory))), memory]
    return Comparison(machine, list(installed), rows, absent)


class _Measuring:
    """The rows of one set of contenders; one that fails loses the row, and the reason is kept."""

    def __init__(
        self, contenders: Sequence[Contender], failed: dict[str, str], rounds: Rounds
    ) -> None:
        self._contenders = contenders
        self._failed = failed
        self._rounds = rounds

    async def creation(self) -> list[Row]:
        """New sandboxes, one at a time."""
        step("create and remove, beside peers …")
        removed: dict[str, list[float]] = {each.name: [] for each in self._contenders}

        def side(contender: Contender) -> Side:
            async def turn() -> Sequence[float]:
                taken = await self._ask(contender, "create")
                if taken:
                    removed[contender.name] += await self._ask(contender, "remove")
                return taken

            return turn

        created = await alternating(self._rounds.creates, *map(side, self._contenders))
        return [
            self._row("create → first result", created),
            self._row("remove", [values[1:] for values in removed.values()]),
        ]

    async def commands(self) -> list[Row]:
        """Commands and lines in one sandbox, one after another."""
        step("commands, beside peers …")
        await self._create(1)
        return [
            await self._compared("exec `true`", "run_true", times=self._rounds.times),
            await self._compared("a line of Python", "lines", times=_LINES),
        ]

    async def memory(self, floors: Floors) -> Row:
        """The working sets of further sandboxes, after their first command."""
        await self._create(_SANDBOXES - 1)
        values = []
        for contender in self._contenders:
            _, *idle = await self._ask(contender, "containers") or [""]
            values.append([floors.working_set(name) / _MIB for name in idle])
        return self._row("memory of an idle sandbox", values, unit="MiB", scale=1)

    async def rates(self) -> Row:
        """Commands in all sandboxes at once."""
        step("commands at once, beside peers …")
        values = await self._alternated(
            self._rounds.commands, "rate", in_flight=_IN_FLIGHT, times=self._rounds.times
        )
        what = f"exec `true`, {_IN_FLIGHT} at once"
        return self._row(what, values, unit="/s", scale=1, rate=True)

    async def files(self, file: Path, tree: Path) -> list[Row]:
        """One large file, and many small ones, in both directions."""
        step("files, beside peers …")
        rows = []
        for what, kind, path in (
            (f"{_FILE_MB} MB", "file", file),
            (f"{_TREE_FILES} small files", "tree", tree),
        ):
            for way, verb in (("up", "send"), ("down", "fetch")):
                values = await self._alternated(
                    self._rounds.files, f"{verb}_{kind}", path=str(path)
                )
                rows.append(self._row(f"{what} {way}", values))
        return rows

    async def _create(self, count: int) -> None:
        for contender in self._contenders:
            for _ in range(count):
                await self._ask(contender, "create")

    async def _compared(self, what: str, operation: str, **arguments: Any) -> Row:
        return self._row(
            what, await self._alternated(self._rounds.commands, operation, **arguments)
        )

    async def _alternated(self, rounds: int, operation: str, **arguments: Any) -> list[list[float]]:
        def side(contender: Contender) -> Side:
            return lambda: self._ask(contender, operation, **arguments)

        return await alternating(rounds, *map(side, self._contenders))

    async def _ask(self, contender: Contender, operation: str, **arguments: Any) -> list[Any]:
        try:
            return await contender.ask(operation, **arguments) or []
        except ContenderError as error:
            if contender.name == OURS:
                raise
            self._failed[contender.name] = str(error)
            return []

    def _row(
        self,
        what: str,
        values: Sequence[Sequence[float]],
        *,
        unit: str = "ms",
        scale: float = 1000,
        rate: bool = False,
    ) -> Row:
        figures = {
            contender.name: figure(measured, scale=scale, rate=rate)
            for contender, measured in zip(self._contenders, values, strict=True)
            if measured
        }
        return Row(what, unit, figures, rate)


def warm_apart(row: Row) -> tuple[Row, Row]:
    """The row without the warm figure, and another one that has it as Paddock's."""
    figures = dict(row.figures)
    warm = figures.pop(_WARM)
    return (
        replace(row, figures=figures),
        replace(row, what=f"{row.what}, warm", figures={**figures, OURS: warm}),
    )


def install(image: str) -> tuple[dict[str, Installed], dict[str, str]]:
    """The contenders by name, and the reasons for those that are absent."""
    own = Path(sys.executable)
    found = {OURS: Installed("paddock", own, image), _ENGINE: Installed("docker", own, image)}
    try:
        python = environment.python()
        theirs = environment.image(image, python)
    except environment.PeersError as error:
        return found, {_SWE_REX: str(error), _LLM_SANDBOX: str(error)}
    found[_SWE_REX] = Installed("swe-rex", python, theirs)
    found[_LLM_SANDBOX] = Installed("llm-sandbox", python, theirs)
    return found, {}


@asynccontextmanager
async def _contenders(
    plane: Plane, installed: dict[str, Installed], level: str
) -> AsyncIterator[list[Contender]]:
    async with AsyncExitStack() as stack:
        yield [
            await stack.enter_async_context(
                contending(name, driver, python, Options(image, plane.url, plane.key, level))
            )
            for name, (driver, python, image) in installed.items()
        ]


def _inputs(directory: Path) -> tuple[Path, Path]:
    """The file and the directory that are copied: text, because one peer reads nothing else."""
    file, tree = directory / "file", directory / "tree"
    file.write_text(os.urandom(_FILE_MB * _MB // 2).hex())
    for number in range(_TREE_FILES):
        path = tree / f"part-{number // _FILES_A_DIRECTORY}" / f"file-{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(os.urandom(_TREE_FILE_BYTES // 2).hex())
    return file, tree
