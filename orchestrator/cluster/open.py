"""Opens the floor of the cluster: what the settings say, or one machine alone."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from orchestrator.cluster.alone import NoMembership, NoMoves, OwnPlaces, OwnUsage
from orchestrator.cluster.base import ClusterUsage, KeySource, Membership, Places
from orchestrator.cluster.copies import LostSessions, NoCopies, ShippedRecords, WorkspaceCopies
from orchestrator.cluster.directory import Directory
from orchestrator.cluster.following import Following
from orchestrator.cluster.lending import Lender
from orchestrator.cluster.moves import Moves
from orchestrator.cluster.names import NameClaims, OwnNames
from orchestrator.cluster.outbox import Outbox
from orchestrator.cluster.shared import SharedDatabase
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.open import GroundFloor
from orchestrator.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class ClusterFloor:
    """What the cluster decides, or this node where it is alone, which has no `directory`.

    `shared` None: what keys have is in this node's database. `lender` None: quotas of bytes are of
    this node. What upper floors `following` is started by the last.
    """

    places: Places
    moves: Moves
    directory: Directory | None
    cluster_usage: ClusterUsage
    key_source: KeySource
    membership: Membership
    outbox: Outbox
    shipped: ShippedRecords = field(default_factory=NoCopies)
    copies: WorkspaceCopies = field(default_factory=NoCopies)
    lost: LostSessions = field(default_factory=NoCopies)
    shared: SharedDatabase | None = None
    lender: Lender | None = None
    following: Following | None = None
    names: NameClaims = field(default_factory=OwnNames)


async def open_cluster(
    settings: Settings, ground: GroundFloor, file_keys: KeySource, closers: AsyncExitStack
) -> ClusterFloor:
    """Opens the floor; `file_keys` are this node's own. Raises: ConfigError."""
    outbox = Outbox(ground.database)
    if settings.cluster is None:
        return ClusterFloor(
            OwnPlaces(), NoMoves(), None, OwnUsage(), file_keys, NoMembership(), outbox
        )
    # Only here, so that one machine alone needs nothing of a cluster.
    try:
        from orchestrator.cluster.postgres.open import open_store
    except ModuleNotFoundError:
        raise ConfigError(
            "PADDOCK_CLUSTER: a node needs asyncpg: `pip install 'paddock-server[cluster]'`"
        ) from None
    store = await open_store(settings, ground, outbox, file_keys, closers)
    return ClusterFloor(
        *(store.places, store.moves, store.directory, store.usage, store.keys, store.membership),
        outbox,
        *(store.shipped, store.copies, store.lost),
        *(store.database, store.lender, Following(store.database)),
        names=store.names,
    )
