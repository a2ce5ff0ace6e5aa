"""What a tick of a run costs besides its model's time: beside the same calls, made directly."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from paddock import Paddock, Session
from tests.bench.plane import BenchError, measured_plane
from tests.bench.report import Result, compare
from tests.bench.rounds import alternating
from tests.support.models import KEY, Answer, ModelServer, calling, model_server

_TICKS = 10
_POLICY: Mapping[str, Any] = {
    "allowed_operations": ["llm.complete", "world.read", "world.exec", "world.tool"],
    "denied_operations": [],
    "execution_rules": {"allow_shell_commands": True, "allow_network_calls": True},
}


class Ticks(NamedTuple):
    """Ticks of one kind: what the model answers in each but the last one, and the level."""

    name: str
    answer: Answer
    number: int = _TICKS
    level: str = "low"


_KINDS = (
    Ticks("a run of one tick, without a tool", Answer(), number=1),
    Ticks("a tick that reads a file", calling(("read_file", {"path": "README.md"}))),
    Ticks("a tick that runs a command", calling(("exec", {"argv": ["pwd"]}))),
    Ticks(
        "a tick that sends a tool a line",
        calling(("python3__calculate", {"command": "2 + 3"})),
        level="medium",
    ),
)


async def runs(rounds: int) -> list[Result]:
    """A table of ticks, one after the other, with a model that answers at once."""
    results = []
    async with model_server() as model:
        models = json.dumps({"scripted": model.setting()})
        async with (
            measured_plane(PADDOCK_MODELS=models) as plane,
            Paddock(plane.url, plane.key) as paddock,
            aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as direct,
        ):
            for kind in _KINDS:
                async with _session(paddock, kind.level) as session:
                    results.append(await _measured(kind, session, model, direct, rounds))
    return results


@asynccontextmanager
async def _session(paddock: Paddock, level: str) -> AsyncIterator[Session]:
    session = await paddock.sessions.create(permission_level=level, policy=_POLICY)
    await session.files.write("README.md", b"hello\n" * 100)
    try:
        yield session
    finally:
        await session.close(purge=True)


async def _measured(
    kind: Ticks,
    session: Session,
    model: ModelServer,
    direct: aiohttp.ClientSession,
    rounds: int,
) -> Result:
    """Seconds for each tick, beside those for each of its calls of the model."""

    def script() -> None:
        model.bodies.clear()
        model.answers = [*[kind.answer] * (kind.number - 1), Answer("done")]

    async def run() -> list[float]:
        script()
        began = time.perf_counter()
        # The timeline does not grow from run to run.
        ended = await session.send("go", max_ticks=kind.number, max_timeline_entries=2 * _TICKS)
        seconds = time.perf_counter() - began
        failed = [each.error for each in ended.operations if each.error is not None]
        if ended.text != "done" or failed:
            raise BenchError(f"the run came to {ended.outcome}: {failed}")
        return [seconds / kind.number]

    async def calls() -> list[float]:
        """What the latest run has sent, with the same answers."""
        bodies = list(model.bodies)
        script()
        began = time.perf_counter()
        for body in bodies:
            async with direct.post(f"{model.url}/chat/completions", json=body) as answer:
                await answer.read()
        return [(time.perf_counter() - began) / kind.number]

    ours, floor = await alternating(rounds, run, calls)
    return compare(kind.name, ours, "its call of the model", floor)
