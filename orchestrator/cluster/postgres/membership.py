"""This node's part in the cluster: it joins, renews its lease, and joins again if it was given up.

While the database does not answer, it goes on trying; sessions go on meanwhile.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from orchestrator.cluster.base import Capacity
from orchestrator.cluster.postgres.lease import RENEWAL_SECONDS, GivenUpError, Lease
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.task_scope import together
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.host.node.boot import boottime

log = logging.getLogger(__name__)

# A renewal that takes longer is reported.
_ROUND_SECONDS = 30.0

Joined = Callable[[], Awaitable[None]]


class PostgresMembership:
    """Keeps the lease of this node, by a supervised task."""

    def __init__(self, lease: Lease, tasks: Tasks, sent: Callable[[], Awaitable[int]]) -> None:
        """`sent` gives the highest id that the outbox has ever given."""
        self._lease = lease
        self._tasks = tasks
        self._sent = sent
        self._rounds = Rounds(_ROUND_SECONDS)
        self._task: Supervised | None = None
        self._member = False
        # Whether the places were compared since the cluster last failed to answer.
        self._compared = False
        self._said = ""
        self._clocks_agree = True
        self._of_renewals: list[Callable[[], None]] = []

    @property
    def epoch(self) -> int:
        """As `Membership.epoch`."""
        return self._lease.epoch

    @property
    def state(self) -> str:
        """As `Membership.state`."""
        return self._lease.state

    @property
    def renewed_at(self) -> float:
        """As `Membership.renewed_at`."""
        return self._lease.renewed_at

    def on_renewal(self, subscriber: Callable[[], None]) -> None:
        """As `Membership.on_renewal`."""
        self._of_renewals.append(subscriber)

    async def join(self, capacity: Capacity, joined: Joined) -> None:
        """As `Membership.join`. Raises: ConfigError."""
        self._lease.tells(capacity.report)
        try:
            await self._once(joined)
        except ClusterUnavailableError as error:
            log.warning("this node has not joined its cluster yet: %s", error.detail)
        self._task = self._tasks.start(
            TaskName.LEASE, partial(self._keep, joined), rounds=self._rounds
        )

    async def close(self) -> None:
        """Renews no more; the lease ends by itself, and sessions go on."""
        if self._task is not None:
            await self._task.close()

    async def _once(self, joined: Joined) -> None:
        """Joins unless it is a member, and renews. Raises: ConfigError, ClusterUnavailableError."""
        if not self._member:
            await self._lease.register(await self._sent())
            # What has no place yet takes one by the comparison, for which the lease must last.
            await self._lease.renew()
            await self._compare(joined)
            self._lease.joining, self._member = False, True
        try:
            await self._lease.renew()
        except GivenUpError as error:
            self._member = not error.forgotten
            raise
        except ClusterUnavailableError:
            self._compared = False
            raise
        self._compare_clocks()
        for subscriber in self._of_renewals:
            subscriber()
        if not self._compared:
            # What was asked of the cluster meanwhile may have been done without an answer.
            await self._compare(joined)

    def _compare_clocks(self) -> None:
        """Says it when they begin to differ, and when they agree again."""
        apart, agreed = self._lease.apart, self._clocks_agree
        self._clocks_agree = apart is None
        if apart is not None and agreed:
            log.warning("%s: %s", *apart)
        elif apart is None and not agreed:
            log.info("this machine's clock and that of the cluster's database agree again")

    async def _compare(self, joined: Joined) -> None:
        """Compares the places, while the lease is renewed. Raises: ClusterUnavailableError."""
        async with together() as begin:
            renewing = begin(self._renewing())
            await joined()
            renewing.cancel()
        self._compared = True

    async def _renewing(self) -> None:
        """Renews while it joins, which may take longer than a lease lasts. Raises: GivenUpError."""
        while True:
            await asyncio.sleep(RENEWAL_SECONDS)
            try:
                await self._lease.renew()
            except GivenUpError:
                raise
            except ClusterUnavailableError as error:
                self._complain(str(error))

    def _complain(self, why: str) -> None:
        """Once for each reason, not every three seconds."""
        if why != self._said:
            log.warning("the lease of this node is not renewed: %s", why)
        self._said = why

    async def _keep(self, joined: Joined) -> None:
        while True:
            # A renewal that waits for its time-out is no reason to wait longer for the next.
            began = boottime()
            with self._rounds.round() as this:
                try:
                    await self._once(joined)
                except (ClusterUnavailableError, ConfigError) as error:
                    this.failed = True
                    self._complain(str(error))
                else:
                    self._said = ""
            await asyncio.sleep(max(0.0, began + RENEWAL_SECONDS - boottime()))
