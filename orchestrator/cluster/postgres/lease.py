"""A node's lease: until when it counts as alive, by the database's clock.

The node believes in it for as long, counted from the sending of the renewal by a clock of its own
that goes on while the machine sleeps. So it stops to believe before others do, whatever the time of
day is here or there.
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable

from orchestrator.cluster import reports
from orchestrator.cluster.base import NodeReport
from orchestrator.cluster.postgres.connection import Connection
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.tasks import Rounds

log = logging.getLogger(__name__)

RENEWAL_SECONDS = 3.0
LEASE_SECONDS = 15.0
READY, DRAINING, GONE = "ready", "draining", "gone"
_UNTIL = f"clock_timestamp() + interval '{LEASE_SECONDS} seconds'"
_GIVEN_UP = (
    "the cluster has given this node up, or another process has its name: its sessions end, and it"
    " joins again when it is started"
)


def boottime() -> float:
    """Seconds since the machine has started, its sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Lease:
    """The lease of this node. Its epoch is 0 until it is registered."""

    def __init__(
        self,
        database: ClusterDatabase,
        identity: str,
        report: Callable[[], NodeReport],
        clock: Callable[[], float] = boottime,
    ) -> None:
        """`identity` is the state directory's: another one may not have the node's name.

        `report` gives what the node says of itself; its name is the node's.
        """
        self.node = report().name
        self.epoch = 0
        # The process: whoever had the name before in the same state directory works no more.
        self.holder = secrets.token_hex(16)
        self.state = READY
        self.given_up = asyncio.Event()
        self._database = database
        self._identity = identity
        self._report = report
        self._clock = clock
        self._believed_until = float("-inf")

    @property
    def alive(self) -> bool:
        """Whether it may believe that the lease lasts."""
        return self.seconds_left > 0

    @property
    def seconds_left(self) -> float:
        """For how long it may believe so."""
        return 0.0 if self.given_up.is_set() else max(0.0, self._believed_until - self._clock())

    def check(self) -> None:
        """Raises: ClusterUnavailableError if the node has no epoch, or was given up."""
        if self.given_up.is_set():
            raise ClusterUnavailableError(_GIVEN_UP)
        if not self.epoch:
            raise ClusterUnavailableError(
                "this node has not joined its cluster yet, because the database did not answer: "
                "see the log; it is tried again"
            )

    async def register(self, sent: int = 0) -> None:
        """Takes the name, and a lease. `sent` is the highest id that the outbox has ever given.

        Raises: ConfigError if another state directory has the name; ClusterUnavailableError.
        """

        async def take(connection: Connection) -> tuple[int, str]:
            return await self._take(connection, sent)

        sent_at = self._clock()
        self.epoch, self.state = await self._database.transaction(take)
        self._believed_until = sent_at + LEASE_SECONDS

    async def _take(self, connection: Connection, sent: int) -> tuple[int, str]:
        report = json.dumps(reports.stored(self._report()))
        row = await connection.fetchrow(
            "SELECT epoch, identity, state, until > clock_timestamp() AS alive FROM nodes"
            " WHERE name = $1 FOR UPDATE",
            self.node,
        )
        epoch, state = 1, READY
        if row is not None:
            forgotten = row["state"] == GONE
            if row["identity"] != self._identity and not forgotten:
                raise ConfigError(_taken(self.node, alive=row["alive"]))
            epoch = row["epoch"] + 1 if forgotten else row["epoch"]
            state = READY if forgotten else row["state"]
        await connection.execute(
            "INSERT INTO nodes (name, epoch, identity, holder, state, report, renewed, until)"  # noqa: S608
            f" VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), {_UNTIL})"
            " ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch,"
            " identity = excluded.identity, holder = excluded.holder, state = excluded.state,"
            " report = excluded.report, renewed = excluded.renewed, until = excluded.until",
            *(self.node, epoch, self._identity, self.holder, state, report),
        )
        # The outbox of a restored backup gives ids anew that were applied before.
        await connection.execute(
            "INSERT INTO outboxes AS o (node, epoch, applied) VALUES ($1, $2, 0)"
            " ON CONFLICT (node, epoch) DO UPDATE SET applied = least(o.applied, $3)",
            *(self.node, epoch, sent),
        )
        return epoch, state

    async def renew(self) -> None:
        """Renews the lease and tells what the node is. Raises: ClusterUnavailableError."""
        self.check()
        report = json.dumps(reports.stored(self._report()))

        async def update(connection: Connection) -> str | None:
            state: str | None = await connection.fetchval(
                f"UPDATE nodes SET renewed = clock_timestamp(), until = {_UNTIL}, report = $4"  # noqa: S608
                " WHERE name = $1 AND epoch = $2 AND holder = $3 AND state <> 'gone'"
                " RETURNING state",
                *(self.node, self.epoch, self.holder, report),
            )
            return state

        sent_at = self._clock()
        state = await self._database.transaction(update)
        if state is None:
            self.given_up.set()
            self.check()
            return
        self.state = state
        self._believed_until = sent_at + LEASE_SECONDS

    async def keep(self, rounds: Rounds, sent: Callable[[], int]) -> None:
        """Registers and renews for as long as it runs: the work of a supervised task.

        It ends when the node is given up. The database may be away for any time meanwhile.
        """
        while not self.given_up.is_set():
            began = self._clock()
            with rounds.round() as this:
                try:
                    await (self.renew() if self.epoch else self.register(sent()))
                except (ClusterUnavailableError, ConfigError) as error:
                    this.failed = True
                    log.warning("the lease of this node is not renewed: %s", error)
            await asyncio.sleep(max(0.0, began + RENEWAL_SECONDS - self._clock()))
        log.error(_GIVEN_UP)
        await asyncio.Event().wait()


def _taken(node: str, *, alive: bool) -> str:
    if alive:
        return (
            f"PADDOCK_NODE: the node {node!r} is alive on another machine, or from another state"
            " directory: give this one another name"
        )
    return (
        f"PADDOCK_NODE: the node {node!r} belongs to another state directory, whose sessions it"
        " would lose: give this one another name, or give that one up with"
        f" `paddock cluster forget {node}`"
    )
