"""What survives the loss of a machine: copies of chains and of workspaces. No I/O.

The node that has a session is the only writer of its copies. They are behind the session by a
moment, but for what `durability = "cluster"` promises.
"""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from orchestrator.ground.limits import KeyLimits

# Events of one message, and about how many bytes they may have together.
MOST_EVENTS = 100
MOST_EVENT_BYTES = 1024 * 1024
# Bytes of an archive in one row.
PIECE_BYTES = 1024 * 1024


class ShippedEvent(NamedTuple):
    """An event of a session's chain: `body` is the canonical text that was hashed."""

    session_key: str
    seq: int
    body: str
    prev_hash: str
    hash: str


class ShippedRecords(Protocol):
    """The cluster's copies of chains."""

    async def ship(self, events: Sequence[ShippedEvent]) -> None:
        """Stores at most `MOST_EVENTS` of them; those that are there already stay as they are.

        Raises: ClusterUnavailableError.
        """


@dataclass(frozen=True, slots=True)
class WorkspaceCopy:
    """An archive of a session without its sandbox, as a snapshot has it.

    `bytes` is its size, `sha256` the digest of its manifest. `continued` is what else the session
    goes on with, as JSON without secrets; its handle's digest is apart, because that may change.
    """

    session_id: str
    session_key: str
    owner: str
    bytes: int
    sha256: str
    handle_sha256: str
    continued: str


class WorkspaceCopies(Protocol):
    """The cluster's copies of workspaces: the last complete one of each session."""

    async def store(
        self, copy: WorkspaceCopy, pieces: AsyncIterator[bytes], quota: KeyLimits
    ) -> None:
        """Stores it in place of the one before; or that one stays.

        Both count for the owner meanwhile. Raises: RateLimitedError above the quota;
        ClusterUnavailableError.
        """


@dataclass(frozen=True, slots=True)
class LostSession:
    """A session whose node is lost, with the copy of it that is reserved for this node.

    `node` and `place` say where it was. `event` is the last one of its chain that was copied, with
    its hash; 0 and 64 zeros: none was.
    """

    copy: WorkspaceCopy
    number: int
    node: str
    place: int
    event: int
    hash: str


class LostSessions(Protocol):
    """Sessions that this node may take over. Each method raises ClusterUnavailableError."""

    async def reserve(self) -> LostSession | None:
        """The next one, which others leave to this node for a while; None: there is none."""

    def pieces(self, lost: LostSession) -> AsyncIterator[bytes]:
        """Its archive. Raises: ConflictError if it is gone."""

    async def take(self, lost: LostSession, session_key: str) -> None:
        """Makes its place this node's, under that key, which was offered (`Moves.offer`) before.

        Raises: ConflictError if its node has returned, or another one has taken it.
        """


class NoCopies:
    """One machine alone: there is nowhere to copy to, and nobody asks."""

    async def reserve(self) -> LostSession | None:
        """No other node is lost."""
        return None

    async def pieces(self, lost: LostSession) -> AsyncIterator[bytes]:
        """There are none."""
        return
        yield

    async def take(self, lost: LostSession, session_key: str) -> None:
        """There is none to take."""

    async def ship(self, events: Sequence[ShippedEvent]) -> None:
        """Nothing is copied."""

    async def store(
        self, copy: WorkspaceCopy, pieces: AsyncIterator[bytes], quota: KeyLimits
    ) -> None:
        """Nothing is copied."""
