"""Whether there is room to record more: in the quotas of keys, and on the disk."""

import logging
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from orchestrator.cluster.lending import Borrowing, Lender
from orchestrator.ground.errors import (
    CapacityExhaustedError,
    ClusterUnavailableError,
    PaddockError,
    RateLimitedError,
)
from orchestrator.ground.limits import AUDIT_BYTES, RETRY_SECONDS, KeyLimits
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect, executing
from orchestrator.host.node.resources import free_bytes
from orchestrator.record.audit.writer import ROW_BYTES
from orchestrator.rules.access.keys import KeyRing

log = logging.getLogger(__name__)

QUOTA_REASON, DISK_REASON = "audit_quota", "disk_full"
# Below this fraction of the minimum, running work is ended as well, because it is recorded, too.
_CRITICAL = 4
# The disk is checked at most once in this time.
_LOOK_SECONDS = 1.0
# When more has been lent, if the cluster answers.
_LENT_SECONDS = 1
_KIND = "audit_bytes"
_LOANS = "SELECT owner, granted FROM audit_loans"
_KEEP_LOAN = (
    "INSERT INTO audit_loans VALUES (?, ?)"
    " ON CONFLICT (owner) DO UPDATE SET granted = excluded.granted"
)
# The database adds up what ended sessions have, because there are ever more of them.
_SIZES = """
    SELECT owner, sum(bytes) FROM (
        SELECT owner, audit_bytes + ended_bytes AS bytes FROM key_usage
        UNION ALL
        SELECT owner, audit_bytes FROM sessions INDEXED BY sessions_live_id
        WHERE status IN ('active', 'paused')
    ) GROUP BY owner
"""


class RecordRoom:
    """The ledger bytes of each key's sessions, and the free space on the ledger's disk.

    It governs new work only. Ends are always recorded. In a cluster the quotas hold for all nodes
    together: each uses what it was lent.
    """

    def __init__(
        self,
        keys: KeyRing,
        defaults: KeyLimits,
        least_free: int,
        free: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`free` returns the free bytes; with fewer than `least_free`, nothing new is started."""
        self._keys = keys
        self._defaults = defaults
        self._least_free = least_free
        self._free = free
        self._clock = clock
        self._looked: tuple[float, int] | None = None
        self._bytes: Counter[str] = Counter()
        self._borrowing: Borrowing | None = None

    async def load(self, database: Database) -> None:
        """Loads the sizes from the ledger. Raises: StoreError."""
        rows = await database.read(lambda connection: connection.execute(_SIZES).fetchall())
        self._bytes = Counter(dict(rows))

    async def borrow(self, lender: Lender, database: Database) -> Borrowing:
        """From now on, the cluster lends what may be used. Raises: StoreError."""

        async def keep(owner: str, granted: int) -> None:
            await database.write(executing(_KEEP_LOAN, (owner, granted)), reserve=True)

        borrowing = Borrowing(lender, lambda: _KIND, self._quota, lambda owner: None, keep)
        loans = dict(await database.read(lambda each: each.execute(_LOANS).fetchall()))
        for owner, used in self._bytes.items():
            borrowing.restore(owner, loans.get(owner, 0), used)
        self._borrowing = borrowing
        return borrowing

    async def ready(self, owner: str) -> None:
        """Returns when there is room in the key's quota, or when no more is to be had for now."""
        if self._borrowing is not None:
            await self._borrowing.ready(owner, 1)

    def add(self, owner: str, size: int) -> None:
        """Adds bytes to that key's use, or removes them."""
        self._bytes[owner] += size
        if self._borrowing is not None:
            self._borrowing.use(owner, size)

    def used(self, owner: str) -> int:
        """The ledger bytes of that key's sessions, including ended ones."""
        return self._bytes[owner]

    def check(self, owner: str) -> None:
        """Raises RateLimitedError, CapacityExhaustedError if nothing new may be recorded.

        ClusterUnavailableError if the cluster must lend more first.
        """
        quota = self._quota(owner)
        if quota is not None and self._bytes[owner] >= quota:
            raise _used_up(quota, f"its sessions have {self._bytes[owner]} bytes on record")
        if quota is not None and self._borrowing is not None and not self._borrowing.left(owner):
            raise self._not_lent(owner, quota)
        if self._free_bytes() < self._least_free:
            raise _short("to put anything new on record")

    def check_disk(self, directory: Path) -> None:
        """Raises CapacityExhaustedError if nothing new may be written there.

        The existing part of the path is checked.
        """
        there = next(path for path in (directory, *directory.parents) if path.exists())
        if free_bytes(there) < self._least_free:
            raise _short(f"in {there}")

    def stops(self, owner: str) -> str | None:
        """Why running work must end, if it must."""
        quota, borrowing = self._quota(owner), self._borrowing
        if quota is not None and self._bytes[owner] >= quota:
            return QUOTA_REASON
        # What is being asked for is no reason to end anything.
        if borrowing is not None and borrowing.left(owner) == 0 and borrowing.loan(owner).spent:
            return QUOTA_REASON
        return DISK_REASON if self._free_bytes() < self._least_free // _CRITICAL else None

    def _not_lent(self, owner: str, quota: int) -> PaddockError:
        """Why nothing new may be recorded for a key of which this node has no bytes."""
        loan = None if self._borrowing is None else self._borrowing.loan(owner)
        if loan is None or (loan.answered and not loan.away):
            return _used_up(quota, "all of it is on record, or lent to nodes of the cluster")
        why = "the cluster's database does not answer" if loan.away else "more was just asked for"
        return ClusterUnavailableError(
            f"this node has used what the cluster had lent to it of the key's {AUDIT_BYTES}, and "
            f"{why}: try again",
            retry_after=_LENT_SECONDS,
        )

    def _quota(self, owner: str) -> int | None:
        return self._keys.quota(owner, self._defaults).max_audit_bytes

    def _free_bytes(self) -> int:
        now = self._clock()
        if self._looked is None or now - self._looked[0] >= _LOOK_SECONDS:
            self._looked = now, self._look()
        return self._looked[1]

    def _look(self) -> int:
        """The free bytes; the last known ones if the disk can't be examined."""
        try:
            return self._free()
        except OSError as error:
            log.error("the free disk space is not known: %s", error)
            return 0 if self._looked is None else self._looked[1]


def charging(owner: str) -> Effect:
    """An effect that charges the event with which it commits to a key, not to a session."""
    return executing(
        "INSERT INTO key_usage (owner, audit_bytes)"
        " SELECT ?, length(CAST(body AS BLOB)) + ? FROM events"
        " WHERE id = (SELECT max(id) FROM events)"
        " ON CONFLICT (owner) DO UPDATE SET audit_bytes = audit_bytes + excluded.audit_bytes",
        (owner, ROW_BYTES),
    )


def _used_up(quota: int, what: str) -> RateLimitedError:
    return RateLimitedError(
        f"{AUDIT_BYTES} of this key is {quota}, and {what}: ask the operator to archive ended "
        "ones, or to raise it",
        limit=AUDIT_BYTES,
        retry_after=RETRY_SECONDS,
    )


def _short(what: str) -> CapacityExhaustedError:
    return CapacityExhaustedError(
        f"the host is short of disk space {what}", retry_after=RETRY_SECONDS
    )
