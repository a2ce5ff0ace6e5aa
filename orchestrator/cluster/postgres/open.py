"""Opens a node's part in the cluster's database."""

from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import NamedTuple

from orchestrator.cluster.base import KeySource
from orchestrator.cluster.outbox import Outbox
from orchestrator.cluster.postgres.delivery import PostgresDelivery
from orchestrator.cluster.postgres.directory import PostgresDirectory
from orchestrator.cluster.postgres.identity import identity, last_message
from orchestrator.cluster.postgres.key_copy import Clocks, KeyCopy
from orchestrator.cluster.postgres.keys import PostgresKeys
from orchestrator.cluster.postgres.lease import Lease
from orchestrator.cluster.postgres.lender import PostgresLender
from orchestrator.cluster.postgres.lost_sessions import PostgresLost
from orchestrator.cluster.postgres.membership import PostgresMembership
from orchestrator.cluster.postgres.moves import PostgresMoves
from orchestrator.cluster.postgres.names import PostgresNames
from orchestrator.cluster.postgres.old_rows import OldRows, pruning
from orchestrator.cluster.postgres.places import PostgresPlaces
from orchestrator.cluster.postgres.pool import Access, ClusterDatabase
from orchestrator.cluster.postgres.shipped import PostgresShipped
from orchestrator.cluster.postgres.telling import OutboxTelling
from orchestrator.cluster.postgres.usage import PostgresUsage
from orchestrator.cluster.postgres.workspace_copies import PostgresCopies
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.open import GroundFloor
from orchestrator.host.node.boot import boot_id
from orchestrator.settings.settings import Settings

KEYS_FILE = "cluster-keys.json"


class Store(NamedTuple):
    """What the cluster's database does for a node."""

    places: PostgresPlaces
    moves: PostgresMoves
    directory: PostgresDirectory
    usage: PostgresUsage
    keys: PostgresKeys
    membership: PostgresMembership
    shipped: PostgresShipped
    copies: PostgresCopies
    lost: PostgresLost
    database: ClusterDatabase
    lender: PostgresLender
    names: PostgresNames


async def open_store(
    settings: Settings,
    ground: GroundFloor,
    outbox: Outbox,
    own_keys: KeySource,
    closers: AsyncExitStack,
) -> Store:
    """Opens it, and begins to deliver the outbox. The database may be away.

    Raises: ConfigError if the database is another cluster's, or its schema does not fit.
    """
    access, node = _access(settings)
    database = ClusterDatabase(access)
    await database.open()
    closers.push_async_callback(database.close)
    # Without it, the node serves what it has. Each connection is checked again.
    with suppress(ClusterUnavailableError):
        await database.check()
    lease = Lease(database, node, await identity(ground.database))
    telling = OutboxTelling(outbox, ground.database)
    membership = PostgresMembership(lease, ground.tasks, partial(last_message, ground.database))
    closers.push_async_callback(membership.close)
    outbox.start(PostgresDelivery(database, lease), ground.tasks)
    closers.push_async_callback(outbox.close)
    removing = pruning(OldRows(database, settings.cluster_retention))
    removing.start(ground.tasks)
    closers.push_async_callback(removing.close)
    copy = KeyCopy(settings.state_dir / KEYS_FILE, access.cluster, Clocks(boot_id()))
    keys = PostgresKeys(database, own_keys, copy, settings.cluster_keys_seconds)
    closers.push_async_callback(keys.close)
    return Store(
        PostgresPlaces(database, lease, telling),
        PostgresMoves(database, lease, telling),
        PostgresDirectory(database),
        PostgresUsage(database, lease, telling),
        keys,
        membership,
        PostgresShipped(database, lease),
        PostgresCopies(database, lease),
        PostgresLost(database, lease, telling),
        database,
        PostgresLender(database, lease),
        PostgresNames(database, lease, telling),
    )


def _access(settings: Settings) -> tuple[Access, str]:
    """The settings of a node, which are complete if there is a cluster."""
    if settings.cluster is None or settings.cluster_database is None or settings.node is None:
        raise ConfigError("PADDOCK_CLUSTER: there is no cluster without all of its settings")
    dsn = settings.cluster_database.get_secret_value()
    access = Access(settings.cluster, dsn, settings.cluster_database_password_file)
    return access, settings.node
