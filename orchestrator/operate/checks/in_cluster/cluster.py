"""All checks of a node, or of a gateway, in its cluster."""

import asyncio
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from orchestrator.cluster.tls import GATEWAY
from orchestrator.ground.check import Check, failure
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.threads import bounded
from orchestrator.operate.checks.in_cluster.certificate import ShownCertificate, check_certificate
from orchestrator.operate.checks.in_cluster.ways import check_own_way, check_way
from orchestrator.operate.checks.uids import runs
from orchestrator.settings.settings import Settings

if TYPE_CHECKING:
    from orchestrator.operate.checks.in_cluster.database import DatabaseFacts

CLUSTER = "cluster"
# To all nodes at once.
_MOST_WAYS = 64
# A disk that hangs must not hang the doctor.
_SECONDS = 10.0


class DatabaseOf(NamedTuple):
    """The cluster that settings name, and how its database is reached."""

    cluster: str
    dsn: str
    password_file: Path | None


async def node_checks(settings: Settings) -> list[Check]:
    """The checks of this node; none if the settings name no cluster."""
    cluster, database, name = settings.cluster, settings.cluster_database, settings.node
    cert, key, authority = settings.node_cert, settings.node_key, settings.node_ca
    # A node of a cluster has all of them: settings without one are refused.
    if cluster is None or database is None or name is None:
        return []
    if cert is None or key is None or authority is None or settings.node_url is None:
        return []
    running, identity = await bounded(partial(_of_state_dir, settings), _SECONDS)
    shown = ShownCertificate("PADDOCK_NODE", name, cert, key, authority)
    where = DatabaseOf(
        cluster, database.get_secret_value(), settings.cluster_database_password_file
    )
    certificate, way, (checks, facts) = await asyncio.gather(
        bounded(partial(check_certificate, shown), _SECONDS),
        check_own_way(settings.node_url, cert, runs=running),
        _database_checks(where, name),
    )
    if facts is not None:
        from orchestrator.operate.checks.in_cluster.database import lease_check

        checks.append(lease_check(facts, name, identity, runs=running))
    return [certificate, *checks, way]


async def gateway_checks(where: DatabaseOf, cert: Path, key: Path, authority: Path) -> list[Check]:
    """The checks of a gateway: those of its database, its certificate, and the way to each node."""
    shown = ShownCertificate("PADDOCK_GATEWAY", GATEWAY, cert, key, authority)
    certificate, (checks, facts) = await asyncio.gather(
        bounded(partial(check_certificate, shown), _SECONDS), _database_checks(where, None)
    )
    if not certificate.ok or facts is None:
        return [certificate, *checks]
    few = asyncio.Semaphore(_MOST_WAYS)

    async def way(name: str, url: str) -> Check:
        async with few:
            return await check_way(name, url, shown)

    ways = await asyncio.gather(*(way(name, url) for name, url in facts.nodes.items()))
    return [certificate, *checks, *ways]


async def _database_checks(
    where: DatabaseOf, node: str | None
) -> "tuple[list[Check], DatabaseFacts | None]":
    """The checks of the database, and what they found if it can be used."""
    # Only here, so that one machine alone needs nothing of a cluster.
    try:
        from orchestrator.cluster.postgres import schema
        from orchestrator.cluster.postgres.pool import Access
        from orchestrator.operate.checks.in_cluster import database
    except ModuleNotFoundError:
        remedy = "`pip install 'paddock-server[cluster]'`"
        return [failure(CLUSTER, "a cluster needs asyncpg, which is not installed", remedy)], None
    try:
        facts = await database.read_facts(Access(*where), node)
    except (ClusterUnavailableError, ConfigError) as error:
        return [database.unreachable(error)], None
    found = database.database_check(facts, where.cluster, schema.migrations()[-1].version)
    checks = [found, database.clock_check(facts)]
    return checks, facts if found.ok else None


def _of_state_dir(settings: Settings) -> tuple[bool, str | None]:
    """Whether a control plane uses it, and its identity; None: it has none yet. Blocks."""
    uri = f"file:{quote(str(settings.state_dir / 'paddock.db'))}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, timeout=2)) as connection:
            row = connection.execute("SELECT identity FROM node_identity").fetchone()
    except sqlite3.Error:
        row = None  # the database's own check says what is wrong with it
    return runs(settings), None if row is None else str(row[0])
