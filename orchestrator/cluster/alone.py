"""One machine without a cluster: the node itself knows all places, counts all usage, has the keys.

What others would be told is nothing, and what others would be asked is answered at once.
"""

from collections.abc import Awaitable, Callable

from orchestrator.cluster.base import Capacity, Claim, Mine, Place, Summary
from orchestrator.cluster.moves import Fate, Offer
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.limits import KeyLimits, KeyUsage
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.tasks import Tasks
from orchestrator.ground.threads import Threads
from orchestrator.rules.access.key_entries import load_keys
from orchestrator.rules.access.keys import KeyRing
from orchestrator.settings.settings import Settings

# A file system that hangs appears as a reading that fails.
_READ_SECONDS = 30.0
_PLACE = Place(node="", epoch=0, number=0)
_ALONE = "this control plane is no node of a cluster: there is nowhere to move to"


class OwnPlaces:
    """Each session is here: the registry of sessions and the table of workspaces decide."""

    async def claim(self, claim: Claim) -> Place:
        """Its place has the number 0: none."""
        return _PLACE

    async def unclaim(self, session_key: str) -> None:
        """Nothing was taken."""

    def changed(self, session_key: str, summary: Summary) -> Effect | None:
        """Nobody is told."""
        return None

    def released(self, session_key: str, session_id: str) -> Effect | None:
        """Nobody is told."""
        return None

    def purged(self, workspace_id: str) -> Effect | None:
        """Nobody is told."""
        return None

    async def mine(self) -> Mine | None:
        """None: there is no cluster."""
        return None


class NoMoves:
    """There is no other node."""

    async def offer(self, offer: Offer) -> None:
        """Raises: ConflictError."""
        raise ConflictError(_ALONE)

    async def commit(self, source_key: str, number: int, session_key: str) -> None:
        """Raises: ConflictError."""
        raise ConflictError(_ALONE)

    async def settle(self, session_key: str) -> Place | None:
        """Whatever is here is this node's."""
        return _PLACE

    def arrived(self, session_key: str) -> Effect | None:
        """Nobody is told."""
        return None

    async def fate(self, source_key: str) -> Fate:
        """Nothing was given away by this control plane as it is now."""
        return Fate.PENDING


class OwnUsage:
    """Quotas are of this node: `Shares` and the table of workspaces apply them."""

    async def grow(self, owner: str, session_key: str, most: KeyUsage, quota: KeyLimits) -> None:
        """Nobody else counts it."""

    def settled(self, owner: str, session_key: str, amounts: KeyUsage) -> Effect | None:
        """Nobody else counts it."""
        return None

    async def add_volume(self, owner: str, volume_id: str, size: int, quota: KeyLimits) -> None:
        """Nobody else counts it."""

    async def used(self) -> None:
        """What is used here is all."""


class FileKeys:
    """The keys of the keys file, and the admin key."""

    store = None

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._threads = Threads("the keys file", 1)

    async def load(self) -> KeyRing:
        """All keys. Raises: ConfigError, TimeoutError if the disk does not answer."""
        return await self._threads.call(lambda: load_keys(self._settings), _READ_SECONDS)

    def follow(self, keys: KeyRing, tasks: Tasks) -> None:
        """Nobody else changes them."""


class NoMembership:
    """It is in no cluster."""

    epoch = 0
    state = "ready"
    renewed_at = float("-inf")

    def on_renewal(self, subscriber: Callable[[], None]) -> None:
        """There is none."""

    async def join(self, capacity: Capacity, joined: Callable[[], Awaitable[None]]) -> None:
        """There is nothing to join."""
