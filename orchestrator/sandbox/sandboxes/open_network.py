"""The open network while sandboxes use it: its rules are checked again before a creation must."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.tasks import Round, Rounds, Supervised, TaskName, Tasks
from orchestrator.host.engine.base import Engine, OpenNetwork

log = logging.getLogger(__name__)

# Engines trust a check for a minute. One takes a second, on a busy host several.
_EVERY_SECONDS = 40.0
# For this long after a sandbox was started with the network, others are expected.
_EXPECTED_SECONDS = 600.0
_ROUND_SECONDS = 120.0


class OpenNetworkUse:
    """Gives the network to sandboxes, and renews the check of its rules while they are expected.

    A renewal also restores rules that somebody flushed while sandboxes run. After one that failed,
    each new sandbox waits for a check of its own, and is refused if that fails, too.
    """

    def __init__(
        self,
        engine: Engine,
        image: str,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`image` is the image whose programs install the rules."""
        self._engine = engine
        self._image = image
        self._clock = clock
        self._pause = pause
        self._wanted_until = clock()
        self._wanted = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._in_use: Callable[[], bool] = lambda: False
        self._task: Supervised | None = None

    async def ensure(self) -> OpenNetwork:
        """The network for one sandbox. Raises: EngineUnavailableError without its rules."""
        opened = await self._engine.ensure_open_network(self._image)
        self._wanted_until = self._clock() + _EXPECTED_SECONDS
        self._wanted.set()
        return opened

    def run(self, tasks: Tasks, in_use: Callable[[], bool]) -> None:
        """Begins the renewals. `in_use`: whether a sandbox has the network, or waits with it."""
        self._in_use = in_use
        self._task = tasks.start(TaskName.OPEN_NETWORK, self._keep, rounds=self._rounds)

    async def close(self) -> None:
        """Renews nothing more."""
        if self._task is not None:
            await self._task.close()

    @property
    def _expected(self) -> bool:
        return self._in_use() or self._clock() < self._wanted_until

    async def _keep(self) -> None:
        while True:
            with self._rounds.round() as this:
                await self._round(this)
            if not self._expected:
                self._wanted.clear()
                await self._wanted.wait()  # the sandbox that sets it has just checked
            await self._pause(_EVERY_SECONDS)

    async def _round(self, this: Round) -> None:
        if not self._expected:
            return
        try:
            await self._engine.ensure_open_network(self._image, renew=True)
        except PaddockError as error:
            this.failed = True
            log.warning("the rules of the open network are not known to hold: %s", error.detail)
