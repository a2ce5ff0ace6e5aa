"""What keys use in the whole cluster: one row for each, changed with what it counts.

Cores are counted in millionths, so that sums of many nodes stay exact.
"""

from typing import NamedTuple

from orchestrator.cluster import messages
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.postgres.connection import DatabaseConnection
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.postgres.telling import Telling
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.limits import KeyLimits, KeyUsage, check_quota
from orchestrator.ground.store.effect import Effect

_MICRO = 1_000_000


class Counted(NamedTuple):
    """Amounts as the tables have them."""

    sessions: int = 0
    micro_cpus: int = 0
    memory_bytes: int = 0
    workspaces: int = 0
    workspace_bytes: int = 0

    def plus(self, more: "Counted") -> "Counted":
        """Both together."""
        return Counted(*(mine + others for mine, others in zip(self, more, strict=True)))

    def usage(self) -> KeyUsage:
        """The same in the units of quotas."""
        return KeyUsage(
            self.sessions,
            self.micro_cpus / _MICRO,
            self.memory_bytes,
            self.workspaces,
            self.workspace_bytes,
        )


def counted(usage: KeyUsage) -> Counted:
    """The usage as the tables have it."""
    return Counted(
        usage.sessions,
        round(usage.cpus * _MICRO),
        usage.memory_bytes,
        usage.workspaces,
        usage.workspace_bytes,
    )


def limits(quota: KeyLimits) -> tuple[int | None, ...]:
    """The quota in the order and the units of `Counted`."""
    cpus = None if quota.max_cpus is None else round(quota.max_cpus * _MICRO)
    return (
        quota.max_sessions,
        cpus,
        quota.max_memory_bytes,
        quota.max_workspaces,
        quota.max_workspace_bytes,
    )


_COLUMNS = Counted._fields
_SUMS = ", ".join(f"{name} = u.{name} + more.{name}" for name in _COLUMNS)
# A value that does not grow is accepted, even above a limit that was lowered.
WITHIN = " AND ".join(
    f"(more.{name} <= 0 OR ${{{number}}}::bigint IS NULL"
    f" OR u.{name} + more.{name} <= ${{{number}}}::bigint)"
    for number, name in enumerate(_COLUMNS)
)


def within(first: int) -> str:
    """A condition on the row `u` and what is added, `more`; the limits begin at that parameter."""
    return WITHIN.format(*range(first, first + len(_COLUMNS)))


_MORE = ", ".join(f"${number}::bigint AS {name}" for number, name in enumerate(_COLUMNS, 2))
_ADD = (
    f"UPDATE key_usage u SET {_SUMS} FROM (SELECT {_MORE}) AS more"  # noqa: S608 - names are ours
    " WHERE u.owner = $1"
)
_ADD_WITHIN = f"{_ADD} AND {within(7)} RETURNING true"
_KEPT = (
    "SELECT id FROM workspaces w WHERE owner = $1 AND NOT volume"
    " AND NOT EXISTS (SELECT FROM places p WHERE p.id = w.id) ORDER BY since LIMIT 1"
)

# Owners that use nothing are left out: keys come and go.
_ALL = (
    f"SELECT owner, {', '.join(_COLUMNS)} FROM key_usage"  # noqa: S608 - names are ours
    " WHERE sessions > 0 OR workspaces > 0"
)


async def add(connection: DatabaseConnection, owner: str, more: Counted, quota: KeyLimits) -> None:
    """Adds to what the owner uses, within the quota. Its row stays locked until the commit.

    Raises: RateLimitedError that names the limit.
    """
    if await connection.fetchval(_ADD_WITHIN, owner, *more, *limits(quota)):
        return
    await connection.execute(
        "INSERT INTO key_usage (owner) VALUES ($1) ON CONFLICT DO NOTHING", owner
    )
    await refuse(connection, owner, more, quota)
    await give(connection, owner, more)


async def refuse(
    connection: DatabaseConnection, owner: str, more: Counted, quota: KeyLimits
) -> None:
    """Raises RateLimitedError if this is more than the quota permits; else locks the row."""
    row = await connection.fetchrow(
        f"SELECT {', '.join(_COLUMNS)} FROM key_usage WHERE owner = $1 FOR UPDATE",  # noqa: S608
        owner,
    )
    used = Counted() if row is None else Counted(*(row[name] for name in _COLUMNS))
    kept = await connection.fetchval(_KEPT, owner)
    check_quota(quota, used.usage(), more.usage(), kept)


async def give(connection: DatabaseConnection, owner: str, more: Counted) -> None:
    """Adds without a limit, or takes."""
    await connection.execute(_ADD, owner, *more)


# $1 session key, $2 node, $3 epoch, $4 cores, $5 memory, $6 bytes of the workspace, $7 … limits.
_GROW = f"""
WITH place AS (
    SELECT id, owner, micro_cpus, memory_bytes, workspaces FROM places
    WHERE session_key = $1 AND node = $2 AND epoch = $3 FOR UPDATE
), space AS (
    SELECT bytes FROM workspaces w WHERE id = (SELECT id FROM place WHERE workspaces > 0) FOR UPDATE
), more AS (
    SELECT owner, 0::bigint AS sessions,
        greatest(0, $4::bigint - micro_cpus) AS micro_cpus,
        greatest(0, $5::bigint - memory_bytes) AS memory_bytes,
        0::bigint AS workspaces,
        greatest(0, $6::bigint - coalesce((SELECT bytes FROM space), $6::bigint)) AS workspace_bytes
    FROM place
), used AS (
    UPDATE key_usage u SET {_SUMS} FROM more WHERE u.owner = more.owner AND {within(7)}
    RETURNING u.owner
), grown AS (
    UPDATE places p SET micro_cpus = p.micro_cpus + more.micro_cpus,
        memory_bytes = p.memory_bytes + more.memory_bytes
    FROM used, more WHERE p.session_key = $1
), widened AS (
    UPDATE workspaces w SET bytes = w.bytes + more.workspace_bytes
    FROM used, more, place WHERE w.id = place.id AND place.workspaces > 0
)
SELECT more.*, EXISTS (SELECT FROM used) AS done FROM more
"""  # noqa: S608 - names are ours


class PostgresUsage:
    """Asks the cluster before a key uses more."""

    def __init__(self, database: ClusterDatabase, lease: Lease, outbox: Telling) -> None:
        self._database = database
        self._lease = lease
        self._outbox = outbox

    async def grow(self, owner: str, session_key: str, most: KeyUsage, quota: KeyLimits) -> None:
        """As `ClusterUsage.grow`, in one statement."""
        await self._outbox.delivered()
        self._lease.check()
        wanted = counted(most)

        async def work(connection: DatabaseConnection) -> None:
            row = await connection.fetchrow(
                _GROW,
                *(session_key, self._lease.node, self._lease.epoch),
                *(wanted.micro_cpus, wanted.memory_bytes, wanted.workspace_bytes),
                *limits(quota),
            )
            if row is None:
                raise ClusterUnavailableError(
                    "the cluster has no place of this session on this node: its node was given up"
                )
            if not row["done"]:
                more = Counted(*(row[name] for name in _COLUMNS))
                await refuse(connection, owner, more, quota)
                raise ClusterUnavailableError("the key's usage has just changed: try again")

        await self._database.statement(work)

    def settled(self, owner: str, session_key: str, amounts: KeyUsage) -> Effect:
        """As `ClusterUsage.settled`."""
        return self._outbox.telling(Kind.SETTLED, messages.settled(session_key, amounts))

    async def add_volume(self, owner: str, volume_id: str, size: int, quota: KeyLimits) -> None:
        """As `ClusterUsage.add_volume`; one that is counted already is not counted again."""
        await self._outbox.delivered()
        self._lease.check()

        async def work(connection: DatabaseConnection) -> None:
            await self._lease.hold(connection)
            added = await connection.fetchval(
                "INSERT INTO workspaces (id, owner, node, bytes, volume)"
                " VALUES ($1, $2, $3, $4, true) ON CONFLICT DO NOTHING RETURNING true",
                *(volume_id.lower(), owner, self._lease.node, size),
            )
            if added:
                await add(connection, owner, Counted(0, 0, 0, 1, size), quota)

        await self._database.transaction(work)

    async def used(self) -> dict[str, KeyUsage]:
        """As `ClusterUsage.used`; first, what has stopped here is told."""
        await self._outbox.delivered()

        async def work(connection: DatabaseConnection) -> dict[str, KeyUsage]:
            rows = await connection.fetch(_ALL)
            each = (tuple(row.values()) for row in rows)
            return {owner: Counted(*amounts).usage() for owner, *amounts in each}

        return await self._database.statement(work)
