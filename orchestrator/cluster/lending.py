"""Bytes of keys that this node was lent: asked for ahead of need, and returned when it is idle.

Whoever uses them waits for the cluster's database for the first portion alone, and uses what is
here while it is away.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from orchestrator.cluster.loan import Loan
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks

log = logging.getLogger(__name__)

# A loan that was not used for so long is returned.
IDLE_SECONDS = 120.0
# A request without success is repeated after so long, if there still is need.
AGAIN_SECONDS = 2.0
_ROUND_SECONDS = 60.0

# The limit of a key now; None: it has none, and nothing is lent.
LimitOf = Callable[[str], int | None]
# Stores what was granted to a key on this node, before it is used, and after it is returned.
Keep = Callable[[str, int], Awaitable[None]]


class Lender(Protocol):
    """Lends bytes of keys. `kind` names what they are, and their window, such as a day."""

    async def granted(self, owner: str, kind: str) -> int:
        """What this node was granted. Raises: ClusterUnavailableError."""

    async def settle(self, owner: str, kind: str, limit: int, used: int, wanted: int) -> int:
        """Tells what is used, and asks for `wanted` in all; returns what is granted in all.

        Raises: ClusterUnavailableError; then it may be granted all the same.
        """


class Borrowing:
    """The loans of one kind of bytes, by owner. Nothing is asked for before `start`."""

    def __init__(
        self,
        lender: Lender,
        kind: Callable[[], str],
        limit_of: LimitOf,
        told: Callable[[str], None],
        keep: Keep | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`told` is called with an owner of whose bytes no more are to be had.

        `keep` None: what is used is not counted beyond this process, so that all that an earlier
        one was granted is taken as used.
        """
        self._lender = lender
        self._kind = kind
        self._limit_of = limit_of
        self._told = told
        self._keep = keep
        self._clock = clock or asyncio.get_running_loop().time
        self._loans: dict[str, Loan] = {}
        # When each was used last, and when it may be asked for again.
        self._touched: dict[str, float] = {}
        self._again: dict[str, float] = {}
        self._wanted: dict[str, None] = {}
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._news = asyncio.Event()
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None

    def restore(self, owner: str, granted: int, used: int) -> None:
        """Takes over what an earlier run was granted and has used."""
        self._loans[owner] = Loan(self._kind(), granted, used)

    def start(self, tasks: Tasks) -> None:
        """Begins to ask and to return."""
        self._task = tasks.start(TaskName.LENDING, self._run, rounds=self._rounds)

    async def close(self) -> None:
        """Returns what is left, if the cluster answers; what it does not hear of stays lent."""
        task, self._task = self._task, None
        if task is None:
            return
        await task.close()
        self._wake_all()
        with suppress(ClusterUnavailableError):
            for owner in list(self._touched):
                await self._give_back(owner)

    def loan(self, owner: str) -> Loan:
        """The owner's in the present window."""
        kind, found = self._kind(), self._loans.get(owner)
        if found is None or found.kind != kind:
            found = self._loans[owner] = Loan(kind)
        return found

    def left(self, owner: str) -> int | None:
        """Bytes that may be used now; None: any number. If they are few, more are asked for."""
        limit = self._limit_of(owner)
        if limit is None:
            return None
        loan = self._looked_at(owner, limit)
        # The limit may have been lowered.
        return min(loan.left, max(0, limit - loan.used))

    def use(self, owner: str, size: int) -> None:
        """Counts bytes that are used; a negative size: they are there no more."""
        self.loan(owner).used += size
        limit = self._limit_of(owner)
        if limit is not None:
            self._looked_at(owner, limit)

    async def ready(self, owner: str, need: int) -> None:
        """Returns when so many bytes are left, or when no more are to be had for now."""
        while self._task is not None:
            left = self.left(owner)
            if left is None or left >= need or not self._ask(owner):
                return
            future = self._waiting.setdefault(owner, asyncio.get_running_loop().create_future())
            await asyncio.shield(future)

    def _looked_at(self, owner: str, limit: int) -> Loan:
        self._touched[owner] = self._clock()
        loan = self.loan(owner)
        if loan.wants(limit):
            self._ask(owner)
        return loan

    def _ask(self, owner: str) -> bool:
        """Whether an answer is to be expected."""
        if owner not in self._wanted:
            if self._again.get(owner, 0.0) > self._clock():
                return False
            self._wanted[owner] = None
            self._news.set()
        return True

    def _wake_all(self) -> None:
        for owner in list(self._waiting):
            self._answered(owner)

    def _answered(self, owner: str) -> None:
        self._wanted.pop(owner, None)
        waiting = self._waiting.pop(owner, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _run(self) -> None:
        while True:
            self._news.clear()
            with self._rounds.round() as this:
                for owner in list(self._wanted):
                    this.failed = not await self._borrow(owner) or this.failed
                await self._return_idle()
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECONDS / 2 if self._touched else None):
                    await self._news.wait()

    async def _borrow(self, owner: str) -> bool:
        """Asks for a portion; whether the cluster has answered."""
        loan, limit = self.loan(owner), self._limit_of(owner)
        try:
            if limit is not None:
                await self._asked(owner, loan, limit)
            loan.away = False
        except ClusterUnavailableError as error:
            log.warning("bytes of the key %s are not lent to this node: %s", owner, error.detail)
            loan.away = True
            self._again[owner] = self._clock() + AGAIN_SECONDS
        finally:
            self._answered(owner)
        if loan.spent:
            self._told(owner)
        return not loan.away

    async def _asked(self, owner: str, loan: Loan, limit: int) -> None:
        if not loan.begun:
            before = await self._lender.granted(owner, loan.kind)
            loan.begin(before, counted=self._keep is not None)
        wanted = loan.asks_for(limit)
        granted = await self._lender.settle(owner, loan.kind, limit, loan.used, wanted)
        loan.answered = granted <= max(loan.granted, loan.used)
        if loan.answered:
            self._again[owner] = self._clock() + AGAIN_SECONDS
        await self._stored(owner, granted)
        loan.granted = granted

    async def _return_idle(self) -> None:
        before = self._clock() - IDLE_SECONDS
        for owner in [each for each, at in self._touched.items() if at <= before]:
            with suppress(ClusterUnavailableError):
                await self._give_back(owner)

    async def _give_back(self, owner: str) -> None:
        """Raises: ClusterUnavailableError; then it counts as lent, and nothing of it is used."""
        loan, limit = self.loan(owner), self._limit_of(owner)
        if loan.begun and limit is not None:
            kept = loan.give_back()
            await self._stored(owner, kept)
            await self._lender.settle(owner, loan.kind, limit, loan.used, kept)
        self._touched.pop(owner, None)

    async def _stored(self, owner: str, granted: int) -> None:
        if self._keep is not None:
            await self._keep(owner, granted)
