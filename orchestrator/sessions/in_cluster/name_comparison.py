"""Compares the names of this node's volumes and snapshots with those that its cluster keeps for it.

A kill after a name was taken leaves a name of nothing. A node that was given up, or that joins with
what it had before, has things whose names nobody keeps for it.
"""

import logging
import sqlite3

from orchestrator.cluster.names import NameClaims, NamedKind, TakenName
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import together

log = logging.getLogger(__name__)

# Messages of one transaction.
_BATCH = 200
_NAMED = """
SELECT 'volume', owner, name, workspace_id FROM volumes
UNION ALL SELECT 'snapshot', owner, name, id FROM snapshots WHERE name IS NOT NULL
"""


class NameComparison:
    """Of this node with its cluster."""

    def __init__(self, names: NameClaims, database: Database) -> None:
        self._names = names
        self._database = database

    async def run(self, *, serves: bool) -> None:
        """Takes names that are missing, and frees those of nothing.

        `serves`: something may be under way here that has taken its name already, so that nothing
        but what was taken here is freed. Raises: ClusterUnavailableError, StoreError.
        """
        before = await self._database.read(_named)
        taken = await self._names.mine()
        if taken is None:
            return
        missing = [each for each in before.values() if each.is_of_key and each.id not in taken]
        for each in missing:
            await self._take(each)
        here = await self._database.read(_named)
        # What was removed meanwhile had no name to free, but has one now.
        late = [each.id for each in missing if each.id not in here]
        await self._free(late if serves else [*late, *(taken - here.keys())])

    async def _take(self, name: TakenName) -> None:
        try:
            await self._names.take(name)
        except ConflictError as error:
            log.warning("%s of %s: %s", name.kind, name.owner, error.detail)

    async def _free(self, ids: list[str]) -> None:
        for begin in range(0, len(ids), _BATCH):
            freed = together(*map(self._names.freed, ids[begin : begin + _BATCH]))
            if freed is not None:
                await self._database.write(freed, reserve=True)


def _named(connection: sqlite3.Connection) -> dict[str, TakenName]:
    """What has a name here, by its id."""
    return {
        thing_id: TakenName(NamedKind(kind), owner, name, thing_id)
        for kind, owner, name, thing_id in connection.execute(_NAMED)
    }
