"""The bytes that each key's sessions move to and from the outside, by day, and their limit.

In a cluster the limit holds for all nodes together: each uses what it was lent.
"""

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime

from orchestrator.cluster.lending import Borrowing, Lender
from orchestrator.ground.limits import EGRESS_BYTES, KeyLimits
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, executing
from orchestrator.rules.access.keys import KeyRing
from orchestrator.rules.egress.rules import Decision

KEY_SPENT = "key-egress-bytes"
# More than is counted at once: what a connection has read, or a request's head.
_NEED = 64 * 1024 + 1


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"


class KeyBytes:
    """Counts by day in UTC. `total` are the bytes of all keys since the start."""

    def __init__(
        self, keys: KeyRing, defaults: KeyLimits, today: Callable[[], str] = _today
    ) -> None:
        self._keys = keys
        self._defaults = defaults
        self._today = today
        # The latest day on which a key had a connection, and its bytes on that day, by key.
        self._used: dict[str, tuple[str, int]] = {}
        self._listeners: dict[str, list[Callable[[], None]]] = {}
        self.total = 0
        self._borrowing: Borrowing | None = None

    def borrow(self, lender: Lender) -> Borrowing:
        """From now on, the cluster lends what may be used."""
        self._borrowing = Borrowing(
            lender, lambda: f"egress_bytes {self._today()}", self.limit, self._tell
        )
        return self._borrowing

    async def ready(self, owner: str) -> None:
        """Returns when bytes of the key are here, or when no more are to be had for now."""
        if self._borrowing is not None:
            await self._borrowing.ready(owner, _NEED)

    async def load(self, database: Database) -> None:
        """Loads what was stored. Raises: StoreError."""
        self._used = await database.read(_stored)

    def used(self, owner: str) -> int:
        """The key's bytes of today."""
        day, used = self._used.get(owner, ("", 0))
        return used if day == self._today() else 0

    def limit(self, owner: str) -> int | None:
        """The key's limit; None: it has none, like the keys of admins."""
        return self._keys.quota(owner, self._defaults).max_egress_bytes_per_day

    def left(self, owner: str) -> int | None:
        """How many bytes the key has left today; None: any number."""
        limit = self.limit(owner)
        if limit is None:
            return None
        here = max(0, limit - self.used(owner))
        lent = None if self._borrowing is None else self._borrowing.left(owner)
        return here if lent is None else min(here, lent)

    def add(self, owner: str, size: int) -> None:
        """Counts bytes. If none are left, the listeners are called."""
        self._used[owner] = (self._today(), self.used(owner) + size)
        self.total += size
        if self._borrowing is not None:
            self._borrowing.use(owner, size)
        if size and self.left(owner) == 0 and not self._more(owner):
            self._tell(owner)

    def _more(self, owner: str) -> bool:
        """Whether the cluster may lend more."""
        borrowing = self._borrowing
        return borrowing is not None and not borrowing.loan(owner).spent

    def _tell(self, owner: str) -> None:
        for listener in list(self._listeners.get(owner, ())):
            listener()

    def decided(self, owner: str, decision: Decision) -> Decision:
        """The decision about a request; a denial if the key has no bytes left."""
        if not decision.allow or self.left(owner) != 0:
            return decision
        return Decision(
            False,
            KEY_SPENT,
            f"{EGRESS_BYTES} of the key {owner} is {self.limit(owner)}, and {self._why(owner)}",
            "The count begins again at midnight, UTC. The operator can raise the limit.",
        )

    def _why(self, owner: str) -> str:
        """Why nothing is left."""
        if self._borrowing is None:
            return "its sessions have used it up today"
        if self._borrowing.loan(owner).away:
            return (
                "this node has used what the cluster had lent to it today: the cluster's database "
                "does not answer, so that there is no more"
            )
        return "its sessions have used it up today, on all nodes together"

    def on_spent(self, owner: str, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` when the key has nothing left; returns a function that ends that."""
        self._listeners.setdefault(owner, []).append(listener)

        def forget() -> None:
            left = self._listeners.get(owner, [])
            if listener in left:
                left.remove(listener)
            if not left:
                self._listeners.pop(owner, None)

        return forget

    def storing(self, owner: str) -> Effect:
        """An effect that stores the key's present count."""
        return executing(
            "INSERT INTO key_usage (owner, egress_day, egress_bytes) VALUES (?, ?, ?)"
            " ON CONFLICT (owner) DO UPDATE SET egress_day = excluded.egress_day,"
            " egress_bytes = excluded.egress_bytes",
            (owner, *self._used.get(owner, ("", 0))),
        )


def _stored(connection: sqlite3.Connection) -> dict[str, tuple[str, int]]:
    rows = connection.execute("SELECT owner, egress_day, egress_bytes FROM key_usage")
    return {owner: (day, used) for owner, day, used in rows}
