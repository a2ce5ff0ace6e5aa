"""What a node asks of its cluster: values and protocols. Nothing here does I/O.

A cluster is machines that each run a node, which is a control plane with its own engine, and one
database that they share. Words: a *place* is the node where a session lives, with a number that
grows with each move. A node *claims* a place before it starts anything. Its *lease* says until when
it counts as alive. Its *epoch* is its number: a node that was given up gets a new one.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Protocol

from orchestrator.ground.limits import KeyLimits, KeyUsage
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.tasks import Tasks
from orchestrator.rules.access.keys import KeyRing, Principal


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session lives: the node's name and epoch, and how often it has moved, from 1."""

    node: str
    epoch: int
    number: int


@dataclass(frozen=True, slots=True)
class Summary:
    """What lists of sessions show without asking the node."""

    status: str
    level: str
    created_at: str
    labels: Mapping[str, str] = field(default_factory=dict)
    work_id: str | None = None
    parent: str | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A place that a node asks for, before `session.create` is recorded.

    `session_key` names the session's life, `owner` is the key that pays for it, `amounts` is what
    it uses, and `quota` is the owner's. A session in its parent's workspace has no workspace in its
    amounts. One that is kept from an earlier session with the id is counted already: it has the
    new size from now on. `recovery` is none or snapshot.
    """

    session_id: str
    session_key: str
    owner: str
    amounts: KeyUsage
    quota: KeyLimits
    summary: Summary
    recovery: str = "none"


@dataclass(frozen=True, slots=True)
class Holding:
    """What the cluster has on a session of this node: its place, and what it counts for it."""

    place: Place
    amounts: KeyUsage


@dataclass(frozen=True, slots=True)
class Mine:
    """What the cluster has on this node: its sessions by key, and ids of workspaces and volumes."""

    sessions: Mapping[str, Holding]
    workspaces: Collection[str]


class Places(Protocol):
    """The places of sessions. A node is the only writer of its own.

    What returns an `Effect` is committed with the event that it belongs to, and reaches the cluster
    later, because nothing that stops may wait for it. None: there is nothing to commit. What asks
    the cluster directly waits until everything that was committed before has reached it.
    """

    async def claim(self, claim: Claim) -> Place:
        """Takes the place for this node.

        Raises: ConflictError if the id lives, or its workspace is on another node;
        RateLimitedError above the quota; ClusterUnavailableError if the cluster can't be asked, or
        has given this node up. Then it may have been taken all the same.
        """

    async def unclaim(self, session_key: str) -> None:
        """Gives back a place whose session was never created, with a workspace that is new with it.

        It may not have been taken. It is repeated until it is done, if need be after a restart.
        """

    def changed(self, session_key: str, summary: Summary) -> Effect | None:
        """Shows the summary in lists, from the commit of the event on."""

    def rehandled(self, session_key: str, handle_sha256: str) -> Effect | None:
        """Gives copies of the session the digest of its new handle."""

    def released(self, session_key: str, session_id: str) -> Effect | None:
        """Releases the place of a session that ends; its workspace stays the node's."""

    def purged(self, workspace_id: str) -> Effect | None:
        """Forgets that the workspace of that id, or the volume, is on this node."""

    async def mine(self) -> Mine | None:
        """What is compared at each start; None: there is no cluster.

        Raises: ClusterUnavailableError.
        """


class ClusterUsage(Protocol):
    """What an owner's sessions and workspaces use in the whole cluster.

    Amounts are whole ones, no differences: what was lost on the way is mended by the next message.
    """

    async def grow(self, owner: str, session_key: str, most: KeyUsage, quota: KeyLimits) -> None:
        """Counts for the session at least these amounts, before it grows to them.

        Raises: RateLimitedError above the quota, ClusterUnavailableError.
        """

    def settled(self, owner: str, session_key: str, amounts: KeyUsage) -> Effect | None:
        """Counts for the session exactly these amounts: it has become smaller, or has not grown."""

    async def add_volume(self, owner: str, volume_id: str, size: int, quota: KeyLimits) -> None:
        """Counts a workspace of so many bytes that no session has, until it is purged.

        Raises: RateLimitedError above the quota, ClusterUnavailableError.
        """

    async def used(self) -> Mapping[str, KeyUsage] | None:
        """What each owner uses on all nodes; None: what it uses here is all.

        Raises: ClusterUnavailableError.
        """


class KeyStore(Protocol):
    """Where the keys of a cluster are changed. Each method raises ClusterUnavailableError."""

    async def check(self, key: Principal) -> None:
        """Raises: ConflictError if the name is taken."""

    async def add(self, key: Principal) -> str:
        """Adds a key and returns its secret, which is stored nowhere. Raises: ConflictError."""

    async def rotate(self, name: str, overlap: timedelta) -> str:
        """Gives a key another secret; the old one is valid for the overlap.

        Raises: NotFoundError, ConflictError.
        """

    async def remove(self, name: str) -> None:
        """Removes a key, which is refused from then on. Raises: NotFoundError."""


class KeySource(Protocol):
    """Where the keys are: a file of this node, or the cluster's database with a last good copy."""

    async def load(self) -> KeyRing:
        """All keys; without a valid copy of a cluster's, this machine's only.

        Raises: ConfigError.
        """

    @property
    def store(self) -> KeyStore | None:
        """Where they are changed; None: in the keys file."""

    def follow(self, keys: KeyRing, tasks: Tasks) -> None:
        """From now on, what a cluster changes is in force in `keys`, too. Files are watched."""


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a node has, or has given to sandboxes: cores, bytes of memory, sandboxes, creations."""

    cpus: float
    memory_bytes: int
    sandboxes: int
    creating: int = 0


@dataclass(frozen=True, slots=True)
class NodeReport:
    """What a node says of itself with each renewal of its lease, and by `GET /api/node`.

    `waiting` counts sandboxes that wait for a session, by shape (`level` or `level image`),
    `used_by` an owner's sandboxes. `images` are the names that sessions may choose, `levels` those
    that this host can enforce.
    """

    name: str
    epoch: int
    state: str  # ready, draining or gone
    capacity: Amounts
    used: Amounts
    labels: Mapping[str, str] = field(default_factory=dict)
    images: Sequence[str] = ()
    levels: Sequence[str] = ()
    waiting: Mapping[str, int] = field(default_factory=dict)
    used_by: Mapping[str, int] = field(default_factory=dict)
    url: str = ""
    version: str = ""
    rules_digest: str = ""


class Capacity(Protocol):
    """What this node has and gives away."""

    def report(self) -> NodeReport:
        """The report as of now, without I/O."""


class Membership(Protocol):
    """This node's part in the cluster: its lease, as long as the process lives."""

    @property
    def epoch(self) -> int:
        """Its number in the cluster; 0: it is in none, or has never had a lease."""

    @property
    def state(self) -> str:
        """ready, draining or gone."""

    @property
    def renewed_at(self) -> float:
        """When the last acknowledged renewal was sent, by CLOCK_BOOTTIME; -inf: there was none."""

    def on_renewal(self, subscriber: Callable[[], None]) -> None:
        """Calls it after each renewal from now on."""

    async def join(self, capacity: Capacity, joined: Callable[[], Awaitable[None]]) -> None:
        """Takes the lease, and renews it with reports of the capacity.

        `joined` is awaited each time that the node has become a part of the cluster, at the start
        and after it was given up, before it says that it is ready: it compares the places. Returns
        after the first try; while the cluster does not answer, further tries follow. Raises:
        ConfigError if the settings are not those of this cluster.
        """


@dataclass(frozen=True, slots=True)
class Message:
    """A row of the outbox: `id` grows, `kind` names what it tells the cluster, `body` is JSON."""

    id: int
    kind: str
    body: Mapping[str, Any]


class MessageDelivery(Protocol):
    """Takes messages of the outbox to the cluster."""

    async def deliver(self, messages: Sequence[Message]) -> None:
        """Applies them in their order, each once however often it comes.

        Raises: ClusterUnavailableError; they are delivered again later.
        """
