"""Several sessions that are created together: all of them are acknowledged, or none."""

import asyncio

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, together

# Sandboxes that are started at the same time.
_AT_ONCE = 4


class JointCreation:
    """Acknowledges sessions in one transaction once all of them have started."""

    def __init__(self, database: Database, count: int) -> None:
        self._database = database
        self._count = count
        self._effects: list[Effect] = []
        self._settled = asyncio.Event()
        self.starting = asyncio.Semaphore(_AT_ONCE)
        self.failure: BaseException | None = None

    def fail(self, error: BaseException) -> None:
        """Lets all of them fail: the first error is the fork's."""
        self.failure = self.failure or error
        self._settled.set()

    def check(self) -> None:
        """Raises: ConflictError if another one has failed."""
        if self.failure is not None:
            raise ConflictError("another session of the fork could not be created")

    async def acknowledge(self, effect: Effect) -> None:
        """Returns once the effects of all are stored. Raises: ConflictError, and all must fail."""
        self._effects.append(effect)
        if len(self._effects) == self._count and self.failure is None:
            FaultPoint.FORK_STARTED.reached()
            try:
                all_of_them = together(*self._effects)
                assert all_of_them is not None  # noqa: S101 - there is one at least
                await self._database.write(all_of_them)
            except BaseException as error:
                self.fail(error)
                raise
            FaultPoint.FORK_ACKNOWLEDGED.reached()
            self._settled.set()
        await self._settled.wait()
        self.check()


class Starting:
    """One of the sandboxes that are started at the same time, until it waits for the others."""

    def __init__(self, joint: JointCreation) -> None:
        self._joint = joint
        self._holds = False

    async def __aenter__(self) -> "Starting":
        await self._joint.starting.acquire()
        self._holds = True
        try:
            self._joint.check()
        except ConflictError:
            self._leave()
            raise
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, _: object) -> None:
        self._leave()
        if error is not None:
            self._joint.fail(error)

    async def acknowledge(self, effect: Effect) -> None:
        """Waits for the others without keeping their places. Raises: ConflictError."""
        self._leave()
        await self._joint.acknowledge(effect)

    def _leave(self) -> None:
        if self._holds:
            self._holds = False
            self._joint.starting.release()
