"""One key seals what a cluster shares: nodes compare theirs by the database, which has none."""

from orchestrator.cluster.shared import Connection, SharedDatabase
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import ConflictError
from orchestrator.record.secrets.sealer import Sealer

_NAME = "PADDOCK_CLUSTER_SECRETS_KEY_FILE"
_FIRST = "UPDATE cluster SET seal_check = $1 WHERE seal_check IS NULL"
_CHECK = "SELECT seal_check FROM cluster"


async def check_seal(database: SharedDatabase, sealer: Sealer | None) -> None:
    """The first node's key is the cluster's.

    Raises: ConfigError if this node has another one, or none; ClusterUnavailableError.
    """

    async def work(connection: Connection) -> str | None:
        if sealer is not None:
            await connection.execute(_FIRST, sealer.check)
        found: str | None = await connection.fetchval(_CHECK)
        return found

    found = await database.transaction(work)
    if found is None or (sealer is not None and found == sealer.check):
        return
    has = "is not set" if sealer is None else "has another key"
    raise ConfigError(
        f"{_NAME} {has}: the cluster's secrets are sealed with the key that its other nodes have; "
        "put a copy of their file here"
    )


def needed(sealer: Sealer | None) -> Sealer:
    """Raises: ConflictError if this node has none."""
    if sealer is None:
        raise ConflictError(
            f"{_NAME} is not set: the secrets and hooks of a cluster are sealed with a key that "
            "all of its nodes have"
        )
    return sealer
