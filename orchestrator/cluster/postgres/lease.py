"""A node's lease: until when it counts as alive, by the database's clock.

The node believes in it for as long, counted from the sending of the renewal by a clock of its own
that goes on while the machine sleeps. So it stops to believe before others do, whatever the time of
day is here or there.
"""

import json
import secrets
from collections.abc import Callable
from datetime import UTC, datetime

from orchestrator.cluster import reports
from orchestrator.cluster.base import Amounts, NodeReport
from orchestrator.cluster.clocks import Apart, clocks_apart
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.host.node.boot import boottime

RENEWAL_SECONDS = 3.0
LEASE_SECONDS = 15.0
# After the end of a lease, until others may take over what they may.
LOST_SECONDS = 5.0
READY, DRAINING, GONE = "ready", "draining", "gone"
_UNTIL = f"clock_timestamp() + interval '{LEASE_SECONDS} seconds'"
_GIVEN_UP = "the cluster has given this node up: its sessions end, and it joins again as a new one"
_REPLACED = (
    "another process works under the name and the identity of this node, as from a copy of its"
    " state directory: end that one, then start this one again"
)


class GivenUpError(ClusterUnavailableError):
    """The node's epoch is over. `forgotten`: it may join again, with another epoch."""

    def __init__(self, detail: str, *, forgotten: bool) -> None:
        super().__init__(detail)
        self.forgotten = forgotten


def time_of_day() -> datetime:
    """The time that this machine's clock says."""
    return datetime.now(UTC)


class Lease:
    """The lease of this node. Its epoch is 0 until it is registered."""

    def __init__(
        self,
        database: ClusterDatabase,
        node: str,
        identity: str,
        clock: Callable[[], float] = boottime,
        today: Callable[[], datetime] = time_of_day,
    ) -> None:
        """`identity` is the state directory's: another one may not have the node's name."""
        self.node = node
        self.epoch = 0
        # The process: whoever had the name before in the same state directory works no more.
        self.holder = secrets.token_hex(16)
        self.state = READY
        # Gateways send nobody to a node that joins: it has not compared its sessions yet.
        self.joining = True
        # What is wrong with this machine's clock, or the database's, as of the last renewal.
        self.apart: Apart | None = None
        self._lost: str | None = None
        self._database = database
        self.identity = identity
        self._report: Callable[[], NodeReport] = lambda: _empty(node)
        self._clock = clock
        self._today = today
        # When the last renewal that was acknowledged was sent.
        self.renewed_at = float("-inf")

    def tells(self, report: Callable[[], NodeReport]) -> None:
        """From now on, the node says this of itself."""
        self._report = report

    @property
    def alive(self) -> bool:
        """Whether it may believe that the lease lasts."""
        return self.seconds_left > 0

    @property
    def seconds_left(self) -> float:
        """For how long it may believe so."""
        return max(0.0, self.renewed_at + LEASE_SECONDS - self._clock())

    def check(self) -> None:
        """Raises: ClusterUnavailableError if the node has no epoch, or has lost it."""
        if self._lost is not None:
            raise ClusterUnavailableError(self._lost)
        if not self.epoch:
            raise ClusterUnavailableError(
                "this node has not joined its cluster yet, because the database did not answer: "
                "see the log; it is tried again"
            )

    async def register(self, sent: int = 0) -> None:
        """Takes the name, and an epoch, and joins. The lease begins with the first renewal.

        `sent` is the highest id that the outbox has ever given. Raises: ConfigError if another
        state directory has the name; ClusterUnavailableError.
        """

        self.joining = True

        async def take(connection: DatabaseConnection) -> tuple[int, str]:
            return await self._take(connection, sent)

        try:
            self.epoch, self.state = await self._database.transaction(take)
        except ClusterUnavailableError as error:
            if isinstance(error.__cause__, ConfigError):
                raise error.__cause__ from None
            raise
        self._lost = None

    async def _take(self, connection: DatabaseConnection, sent: int) -> tuple[int, str]:
        report = self._said()
        row = await connection.fetchrow(
            "SELECT epoch, identity, state, until > clock_timestamp() AS alive FROM nodes"
            " WHERE name = $1 FOR UPDATE",
            self.node,
        )
        epoch, state = 1, READY
        if row is not None:
            forgotten = row["state"] == GONE
            if row["identity"] != self.identity and not forgotten:
                raise ConfigError(_taken(self.node, alive=row["alive"]))
            epoch = row["epoch"] + 1 if forgotten else row["epoch"]
            state = READY if forgotten else row["state"]
        taken = await connection.fetchval(
            "INSERT INTO nodes AS n (name, epoch, identity, holder, state, report, renewed, until)"
            " VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp(), clock_timestamp())"
            " ON CONFLICT (name) DO UPDATE SET epoch = excluded.epoch,"
            " identity = excluded.identity, holder = excluded.holder, state = excluded.state,"
            " report = excluded.report,"
            " until = CASE WHEN n.state = 'gone' THEN excluded.until ELSE n.until END"
            " WHERE n.identity = excluded.identity OR n.state = 'gone' RETURNING true",
            *(self.node, epoch, self.identity, self.holder, state, report),
        )
        if not taken:  # at this moment, by another new node
            raise ConfigError(_taken(self.node, alive=True))
        # The outbox of a restored backup gives ids anew that were applied before.
        await connection.execute(
            "INSERT INTO outboxes AS o (node, epoch, applied) VALUES ($1, $2, 0)"
            " ON CONFLICT (node, epoch) DO UPDATE SET applied = least(o.applied, $3)",
            *(self.node, epoch, sent),
        )
        return epoch, state

    def _said(self) -> str:
        return json.dumps({**reports.stored(self._report()), "joining": self.joining})

    async def renew(self) -> None:
        """Renews the lease and tells what the node is.

        Raises: GivenUpError, ClusterUnavailableError.
        """
        self.check()
        report = self._said()

        async def update(connection: DatabaseConnection) -> str:
            asked = self._today()
            row = await connection.fetchrow(
                f"UPDATE nodes SET renewed = clock_timestamp(), until = {_UNTIL}, report = $4"  # noqa: S608
                " WHERE name = $1 AND epoch = $2 AND holder = $3 AND state <> 'gone'"
                " RETURNING state, renewed",
                *(self.node, self.epoch, self.holder, report),
            )
            if row is None:
                return await self._gone(connection)
            self.apart = clocks_apart(row["renewed"], asked, self._today())
            return str(row["state"])

        sent_at = self._clock()
        try:
            self.state = await self._database.statement(update)
        except GivenUpError as error:
            self._lost, self.renewed_at = error.detail, float("-inf")
            raise
        self.renewed_at = sent_at

    async def hold(self, connection: DatabaseConnection, *, expired: bool = False) -> None:
        """Keeps the node's epoch as it is until the commit; `expired`: the lease may have ended.

        Raises: GivenUpError; ClusterUnavailableError if the lease has ended.
        """
        alive = await connection.fetchval(
            "SELECT until > clock_timestamp() FROM nodes WHERE name = $1 AND epoch = $2"
            " AND holder = $3 AND state <> 'gone' FOR KEY SHARE",
            *(self.node, self.epoch, self.holder),
        )
        if alive is None:
            await self._gone(connection)
        if not alive and not expired:
            raise ClusterUnavailableError(
                "the lease of this node has ended, because it could not be renewed: see the log"
            )

    async def _gone(self, connection: DatabaseConnection) -> str:
        """Raises: GivenUpError, with the reason."""
        row = await connection.fetchrow("SELECT epoch, state FROM nodes WHERE name = $1", self.node)
        forgotten = row is None or row["epoch"] != self.epoch or row["state"] == GONE
        raise GivenUpError(_GIVEN_UP if forgotten else _REPLACED, forgotten=forgotten)


def _empty(node: str) -> NodeReport:
    nothing = Amounts(0, 0, 0)
    return NodeReport(node, 0, READY, nothing, nothing)


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
