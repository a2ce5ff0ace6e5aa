"""Checks of the cluster's database, as this machine reaches it, and of this node's lease in it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.cluster.clocks import clocks_apart
from orchestrator.cluster.postgres import schema
from orchestrator.cluster.postgres.connection import DatabaseConnection, Row
from orchestrator.cluster.postgres.errors import problem_and_remedy
from orchestrator.cluster.postgres.lease import DRAINING, GONE
from orchestrator.cluster.postgres.pool import Access, administering
from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError

DATABASE = "cluster database"
CLOCKS = "cluster clock"
LEASE = "node's lease"
# The oldest that the tests use, as its number is written.
_TESTED = 150000
_SLOW_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What the database has on the name of this node."""

    identity: str
    state: str
    alive: bool
    silent_seconds: float


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What was found. `time` is the database's, between `asked` and `answered` by this clock.

    `nodes` are the addresses of the nodes by name, if the tables are there.
    """

    version: int
    state: schema.State | None
    read_only: bool
    time: datetime
    asked: datetime
    answered: datetime
    node: NodeFacts | None
    nodes: dict[str, str]


_SERVER = """
SELECT current_setting('server_version_num')::int AS version, clock_timestamp() AS time,
    pg_is_in_recovery() OR current_setting('transaction_read_only')::bool AS read_only
"""
_NODE = """
SELECT identity, state, until > clock_timestamp() AS alive,
    extract(epoch FROM clock_timestamp() - renewed)::float8 AS silent
FROM nodes WHERE name = $1
"""
_NODES = """
SELECT name, report ->> 'url' AS url FROM nodes
WHERE state <> 'gone' AND until > clock_timestamp() ORDER BY name
"""


async def read_facts(access: Access, node: str | None) -> DatabaseFacts:
    """Asks the database; `node` is the name of this node. Raises: ClusterUnavailableError,
    ConfigError.
    """
    async with administering(access) as connection:
        asked = datetime.now(UTC)
        server = await connection.fetchrow(_SERVER)
        answered = datetime.now(UTC)
        assert server is not None  # noqa: S101 - it has no condition
        state = await schema.state(connection)
        row, nodes = await _members(connection, node) if state is not None else (None, {})
        return DatabaseFacts(
            server["version"],
            state,
            server["read_only"],
            server["time"],
            asked,
            answered,
            None if row is None else NodeFacts(*row.values()),
            nodes,
        )


async def _members(
    connection: DatabaseConnection, node: str | None
) -> tuple[Row | None, dict[str, str]]:
    row = None if node is None else await connection.fetchrow(_NODE, node)
    found = await connection.fetch(_NODES)
    return row, {each["name"]: each["url"] or "" for each in found}


def unreachable(error: ClusterUnavailableError | ConfigError) -> Check:
    """The result for a database that can't be asked."""
    cause = error.__cause__ if isinstance(error, ClusterUnavailableError) else None
    return failure(DATABASE, *problem_and_remedy(cause or error))


def database_check(facts: DatabaseFacts, cluster: str, ours: int) -> Check:
    """Whether this program, which knows the schema `ours`, can use it for that cluster."""
    misfit = schema.misfit(facts.state, cluster, ours)
    if misfit is not None:
        return failure(DATABASE, *problem_and_remedy(schema.MisfitError(misfit)))
    if facts.read_only:
        return failure(
            DATABASE,
            "is read-only, as a standby is",
            "end its fail-over, or list all servers in PADDOCK_CLUSTER_DATABASE",
        )
    assert facts.state is not None  # noqa: S101 - it fits
    version = f"PostgreSQL {facts.version // 10000}.{facts.version % 10000}"
    detail = f"{version}, schema {facts.state.version}, of the cluster {cluster!r}"
    if facts.version < _TESTED:
        remedy = f"upgrade it to {_TESTED // 10000} or later, the oldest that is tested"
        return warning(DATABASE, detail, remedy)
    took = (facts.answered - facts.asked).total_seconds()
    if took > _SLOW_SECONDS:
        detail = f"{detail}; it took {took:.1f} s to answer"
        return warning(DATABASE, detail, "see its load, and the network to it")
    return ok(DATABASE, detail)


def clock_check(facts: DatabaseFacts) -> Check:
    """Whether its clock and this machine's agree."""
    apart = clocks_apart(facts.time, facts.asked, facts.answered)
    if apart is None:
        return ok(CLOCKS, "this clock and the database's agree")
    return warning(CLOCKS, *apart)


def lease_check(facts: DatabaseFacts, name: str, identity: str | None, *, runs: bool) -> Check:
    """Whether the node is a part of the cluster, or could become one.

    `identity` is the state directory's; None: it has none yet. `runs`: its control plane runs.
    """
    node = facts.node
    if node is None or node.state == GONE:
        if not runs:
            return ok(LEASE, f"the node {name!r} joins the cluster when it starts")
        detail = f"the node {name!r} has not joined, or was given up"
        return warning(LEASE, detail, "see the log of the control plane, which goes on trying")
    if node.identity != identity:
        return failure(
            LEASE,
            f"the name {name!r} belongs to another state directory",
            "set another PADDOCK_NODE, or give that node up: "
            f"`paddock cluster forget {name}` when its machine is switched off",
        )
    silent = f"it was renewed {node.silent_seconds:.0f} s ago"
    if not runs and not node.alive:
        return ok(LEASE, f"{silent}; the control plane does not run")
    if not node.alive:
        detail = f"it has ended: {silent}, and the control plane runs"
        return failure(LEASE, detail, "see its log, and the network to the database")
    if node.state == DRAINING:
        detail = f"{silent}; the node is drained, and takes no new sessions"
        return warning(LEASE, detail, f"`paddock cluster undrain {name}`, if it is to take some")
    return ok(LEASE, silent)
