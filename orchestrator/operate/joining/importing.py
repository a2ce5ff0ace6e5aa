"""Takes into a cluster what a machine had alone. What the cluster has already stays as it is.

A key is known by its digest: what belongs to a key goes to the cluster's key of that name only if
both are one key. Otherwise one team's secrets would be another's, whose key has the same name.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby

from orchestrator.cluster.postgres.key_table import KeyTable
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.cluster.shared import Connection
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.events import now
from orchestrator.operate.hooks import hook_rows, shared_hooks
from orchestrator.operate.joining.belongings import Belongings, owner_of_hook, owner_of_secret
from orchestrator.record.secrets import shared_secrets
from orchestrator.record.secrets.sealer import Sealer
from orchestrator.record.secrets.shared_seal import check_seal
from orchestrator.rules.access.keys import ADMIN_NAME
from orchestrator.state import secret_rows
from orchestrator.work.memory import shared_memory
from orchestrator.work.memory.entries import MOST_ENTRIES, MemoryEntry

# Entries of one transaction.
_BATCH = 100


@dataclass(frozen=True, slots=True)
class Imported:
    """How many are new in the cluster, and what is left here, by owner and reason."""

    keys: int = 0
    secrets: int = 0
    hooks: int = 0
    memory: int = 0
    left: Counter[tuple[str, str]] = field(default_factory=Counter)


class Importer:
    """Of one machine, with its own seal and the cluster's."""

    def __init__(self, database: ClusterDatabase, own: Sealer, shared: Sealer | None) -> None:
        """`shared` None: secrets and hooks are left here."""
        self._database = database
        self._own = own
        self._shared = shared
        self._left: Counter[tuple[str, str]] = Counter()

    async def run(
        self, has: Belongings, owners: Collection[str], report: Callable[[str], None]
    ) -> Imported:
        """Imports; again, it does what is missing. `owners` are the operator's word for a key.

        Raises: ConfigError if the cluster is sealed with another key; ClusterUnavailableError.
        """
        await check_seal(self._database, self._shared)
        report(f"{len(has.keys)} keys")
        new, digests = await KeyTable(self._database).take(has.keys)
        here = {key.name: sha256 for sha256, key in has.keys.items()}
        same = {name for name, sha256 in here.items() if digests.get(name) == sha256}
        for name in here.keys() - same:
            self._left[name, "the cluster has another key of that name"] += 1
        permitted = same | {ADMIN_NAME} | (set(owners) & digests.keys())
        return Imported(
            len(new),
            await self._secrets(has, permitted, report),
            await self._hooks(has, permitted, report),
            await self._memory(has.memory, permitted, report),
            self._left,
        )

    def _may(self, owner: str, permitted: Collection[str]) -> bool:
        if owner in permitted:
            return True
        self._left[owner, "the cluster does not have that key: see --owner"] += 1
        return False

    async def _secrets(
        self, has: Belongings, permitted: Collection[str], report: Callable[[str], None]
    ) -> int:
        report(f"{len(has.secrets)} secrets")
        number = 0
        for secret, sealed in has.secrets:
            owner, bound = owner_of_secret(secret), secret_rows.bound(secret)
            if self._may(owner, permitted) and (anew := self._sealed(owner, sealed, bound)):
                number += await self._database.transaction(
                    partial(shared_secrets.take, secret=secret, sealed=anew)
                )
        return number

    async def _hooks(
        self, has: Belongings, permitted: Collection[str], report: Callable[[str], None]
    ) -> int:
        """Each node tells a hook of events after its time, which therefore is this moment."""
        report(f"{len(has.hooks)} hooks")
        number = 0
        for hook, sealed in has.hooks:
            owner, bound = owner_of_hook(hook), hook_rows.bound(hook)
            if self._may(owner, permitted) and (anew := self._sealed(owner, sealed, bound)):
                begun = replace(hook, created_at=now())
                number += await self._database.transaction(
                    partial(shared_hooks.take, hook=begun, sealed=anew)
                )
        return number

    def _sealed(self, owner: str, sealed: bytes, bound: bytes) -> bytes | None:
        """The same value, sealed for the cluster."""
        if self._shared is None:
            self._left[owner, "PADDOCK_CLUSTER_SECRETS_KEY_FILE is not set"] += 1
            return None
        value = self._own.open(sealed, bound)
        if value is None:
            self._left[owner, "its value is lost: set it again"] += 1
            return None
        return self._shared.seal(value, bound)

    async def _memory(
        self,
        memory: Iterable[MemoryEntry],
        permitted: Collection[str],
        report: Callable[[str], None],
    ) -> int:
        number = 0
        wanted = sorted((e for e in memory if self._may(e.owner, permitted)), key=lambda e: e.owner)
        for owner, group in groupby(wanted, lambda entry: entry.owner):
            entries = list(group)
            for first in range(0, len(entries), _BATCH):
                report(f"{number} entries of the memory")
                number += await self._some(owner, entries[first : first + _BATCH])
        return number

    async def _some(self, owner: str, entries: list[MemoryEntry]) -> int:
        """Adds as many as the key may have."""

        async def work(connection: Connection) -> Counter[str]:
            await shared_memory.alone(connection, owner)
            count = await connection.fetchval("SELECT count(*) FROM memory WHERE owner = $1", owner)
            done: Counter[str] = Counter()
            for entry in entries:
                if count + done["new"] >= MOST_ENTRIES and not await _there(connection, entry):
                    done[f"the cluster's memory has {MOST_ENTRIES} entries of it already"] += 1
                    continue
                try:
                    done["new"] += await shared_memory.put(connection, entry)
                except ValidationError as error:
                    done[error.detail] += 1
            return done

        done = await self._database.transaction(work)
        number = done.pop("new", 0)
        self._left.update({(owner, why): left for why, left in done.items()})
        return number


async def _there(connection: Connection, entry: MemoryEntry) -> bool:
    found = await connection.fetchval("SELECT true FROM memory WHERE id = $1", entry.id)
    return bool(found)
