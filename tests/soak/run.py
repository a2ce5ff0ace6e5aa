"""The run: several sessions at a time live at random, between two measurements."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.soak.footprint import Footprint, footprint, grown
from tests.soak.life import Life
from tests.support.server import Server, serving

# Sessions at a time. As many live before the first measurement, so that what is created on first
# use does not count as growth.
ACTORS = 4
WARM_UP = 3 * ACTORS
_REPORT_SECONDS = 30
# Ended sessions are forgotten soon, so that a short run also sees their release.
_ENDED_SECONDS = 2
_FORGET_SECONDS, _LOOK_SECONDS = 60, 0.2

Report = Callable[[str], None]


@dataclass
class Soak:
    """The result of a run."""

    seed: int
    start: Footprint
    end: Footprint
    lives: int
    steps: int
    failures: list[str] = field(default_factory=list)

    @property
    def complaints(self) -> list[str]:
        """Why the run failed; empty if it did not."""
        return self.failures + grown(self.start, self.end)


class _Actors:
    """Live one session after another until there are enough of them, or the time is over."""

    def __init__(self, server: Server, seed: int) -> None:
        self._server = server
        self._seed = seed
        self.lives = self.steps = 0
        self.failures: list[str] = []

    async def live(self, lives: int | None, seconds: float | None) -> None:
        """Ends after that many further lives, after those seconds, or at the first failure."""
        last = None if lives is None else self.lives + lives
        until_time = None if seconds is None else time.monotonic() + seconds

        def over() -> bool:
            late = until_time is not None and time.monotonic() >= until_time
            return late or self.lives == last or bool(self.failures)

        async def actor() -> None:
            while not over():
                number, self.lives = self.lives, self.lives + 1
                life = Life(self._server, Random(f"{self._seed}-{number}"))
                try:
                    await life.live()
                except Exception as error:
                    self.failures.append(f"life {number}: {type(error).__name__}: {error}")
                self.steps += life.steps

        await asyncio.gather(*(actor() for _ in range(ACTORS)))


async def soak(
    state_dir: Path,
    seed: int,
    report: Report,
    *,
    lives: int | None = None,
    seconds: float | None = None,
) -> Soak:
    """Runs for that many lives or seconds. The seed decides each life, not their interleaving.

    Raises: AssertionError if the first sessions fail already.
    """
    async with _emptied(state_dir) as server:
        actors = _Actors(server, seed)
        await actors.live(WARM_UP, None)
        assert not actors.failures, actors.failures[0]
        start = await _quiet(server)
        report(f"start: {_text(start)}")
        reporting = asyncio.create_task(_progress(server, actors, report))
        try:
            await actors.live(lives, seconds)
        finally:
            reporting.cancel()
            with suppress(asyncio.CancelledError):
                await reporting
        end = await _quiet(server)
        report(f"end:   {_text(end)}")
        return Soak(seed, start, end, actors.lives, actors.steps, actors.failures)


@asynccontextmanager
async def _emptied(state_dir: Path) -> AsyncIterator[Server]:
    """A server whose sessions are closed at the end, even after a failure."""
    async with serving(state_dir, PADDOCK_TERMINATED_TTL=str(_ENDED_SECONDS)) as server:
        try:
            yield server
        finally:
            for session in (await server.ok("GET", "/api/sessions?limit=1000"))["items"]:
                await server.call("DELETE", f"/api/sessions/{session['id']}?purge=true")


async def _quiet(server: Server) -> Footprint:
    """The footprint once ended sessions are forgotten."""

    async with asyncio.timeout(_FORGET_SECONDS):
        # There is no event for it.
        while (await server.ok("GET", "/api/sessions?limit=1"))["items"]:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_SECONDS)
    return await asyncio.to_thread(footprint, server.state_dir, server.pid)


async def _progress(server: Server, actors: _Actors, report: Report) -> None:
    began = time.monotonic()
    while True:
        await asyncio.sleep(_REPORT_SECONDS)
        found = await asyncio.to_thread(footprint, server.state_dir, server.pid)
        minutes = (time.monotonic() - began) / 60
        report(f"{minutes:.1f} min, {actors.lives} sessions, {actors.steps} steps: {_text(found)}")


def _text(found: Footprint) -> str:
    return ", ".join(
        f"{name} {value:.4g}" for name, value in zip(Footprint._fields, found, strict=True)
    )
