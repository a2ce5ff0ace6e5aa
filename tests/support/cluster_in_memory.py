"""A cluster in memory: what nodes claim, and what their outboxes tell it. It outlives them."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any

from orchestrator.cluster import messages
from orchestrator.cluster.base import (
    Capacity,
    Claim,
    Holding,
    KeySource,
    Message,
    Mine,
    Place,
    Summary,
)
from orchestrator.cluster.copies import MOST_EVENTS, PIECE_BYTES, ShippedEvent, WorkspaceCopy
from orchestrator.cluster.directory import (
    ClusterNode,
    Position,
    SessionFilters,
    SessionsPage,
    Where,
)
from orchestrator.cluster.messages import Kind
from orchestrator.cluster.moves import Fate, Offer
from orchestrator.cluster.names import TakenName
from orchestrator.cluster.open import ClusterFloor
from orchestrator.cluster.outbox import Outbox
from orchestrator.ground.errors import ClusterUnavailableError, ConflictError
from orchestrator.ground.limits import KeyLimits, KeyUsage, check_quota
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import Effect
from orchestrator.host.node.boot import boottime
from orchestrator.settings.settings import Settings


@dataclass
class Placed:
    """A session in the cluster; `workspace_before` is the size that its workspace had."""

    id: str
    owner: str
    node: str
    amounts: KeyUsage
    summary: Summary
    workspace_before: int | None
    number: int = 1


@dataclass
class Moving:
    """An offer, which is committed or not."""

    source_key: str
    node: str
    committed: bool = False


@dataclass
class Cluster:
    """Its tables. While it is `away`, nothing can be asked and nothing is delivered.

    With `loses_answers`, a claim is taken and its answer lost.
    """

    places: dict[str, Placed] = field(default_factory=dict)
    # By id: the owner, the node and the bytes.
    workspaces: dict[str, tuple[str, str, int]] = field(default_factory=dict)
    # Of volumes and snapshots, by id, each with its node.
    names: dict[str, tuple[TakenName, str]] = field(default_factory=dict)
    away: bool = False
    loses_answers: bool = False
    # The number of claims, and of places given back, by session key.
    claimed: list[str] = field(default_factory=list)
    given_back: list[str] = field(default_factory=list)
    # The highest id that was applied, by node, and how often a message came again.
    applied: dict[str, int] = field(default_factory=dict)
    repeated: int = 0
    # Copies of chains by session key: bodies and hashes, in order.
    chains: dict[str, list[ShippedEvent]] = field(default_factory=dict)
    # Copies of workspaces by session id.
    copies: dict[str, tuple[WorkspaceCopy, bytes]] = field(default_factory=dict)
    # Whether copies of chains are refused, and nothing else is.
    copies_away: bool = False

    # How long ago each node has renewed its lease.
    silent_seconds: float = 0.0
    of_renewals: list[Callable[[], None]] = field(default_factory=list)

    def renew(self, silent_seconds: float = 0.0) -> None:
        """As if each node had renewed its lease so long ago, and no more since."""
        self.silent_seconds = silent_seconds
        for subscriber in self.of_renewals:
            subscriber()

    # Moves by the key of the new life, and who knows the nodes, if anybody moves sessions.
    moves: dict[str, "Moving"] = field(default_factory=dict)
    nodes: Callable[[], Awaitable[Sequence[ClusterNode]]] | None = None
    # Called by a commit before it is done, and after it.
    at_commit: Callable[[bool], None] = lambda done: None

    def check(self) -> None:
        """Raises: ClusterUnavailableError while it is away."""
        if self.away:
            raise ClusterUnavailableError("the cluster is away", retry_after=1)

    def usage(self, owner: str) -> KeyUsage:
        """What the owner uses on all nodes."""
        own = [each.amounts for each in self.places.values() if each.owner == owner]
        sizes = [size for whose, _, size in self.workspaces.values() if whose == owner]
        return KeyUsage(
            len(own),
            sum(each.cpus for each in own),
            sum(each.memory_bytes for each in own),
            len(sizes),
            sum(sizes),
        )

    def opener(self, node: str) -> Callable[..., Awaitable[ClusterFloor]]:
        """What opens the floor of a control plane that is that node."""

        async def open_floor(
            settings: Settings, ground: GroundFloor, keys: KeySource, closers: AsyncExitStack
        ) -> ClusterFloor:
            outbox = Outbox(ground.database)
            part = NodePart(self, node, outbox, ground.database)
            outbox.start(part, ground.tasks)
            closers.push_async_callback(outbox.close)
            moves = MovesInMemory(self, node, outbox)
            names = NamesInMemory(self, node, outbox)
            return ClusterFloor(
                *(part, moves, _Known(self), part, keys, part, outbox, part, part), names=names
            )

        return open_floor


class _Known:
    """What nodes ask of the directory."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def nodes(self) -> Sequence[ClusterNode]:
        assert self._cluster.nodes is not None
        return await self._cluster.nodes()

    async def places_of(self, session_ids: Collection[str]) -> Mapping[str, Where]:
        raise NotImplementedError

    def following(self) -> AsyncGenerator[Sequence[ClusterNode], None]:
        raise NotImplementedError

    async def sessions(
        self, owner: str | None, after: Position | None, limit: int, filters: SessionFilters
    ) -> SessionsPage:
        raise NotImplementedError


class MovesInMemory:
    """One node's moves."""

    def __init__(self, cluster: Cluster, node: str, outbox: Outbox) -> None:
        self._cluster = cluster
        self._node = node
        self._outbox = outbox

    async def offer(self, offer: Offer) -> None:
        await self._outbox.delivered()
        self._cluster.check()
        place = self._cluster.places.get(offer.source_key)
        if place is None or (place.node, place.number) != (offer.source, offer.number):
            raise ConflictError("the place has changed")
        self._cluster.moves[offer.session_key] = Moving(offer.source_key, self._node)

    async def commit(self, source_key: str, number: int, session_key: str) -> None:
        await self._outbox.delivered()
        cluster = self._cluster
        cluster.at_commit(False)
        cluster.check()
        offer, place = cluster.moves.get(session_key), cluster.places.get(source_key)
        if offer is None or offer.committed or offer.source_key != source_key:
            raise ConflictError("there is no offer")
        if place is None or (place.node, place.number) != (self._node, number):
            raise ConflictError("the place has changed")
        offer.committed = True
        del cluster.places[source_key]
        cluster.places[session_key] = replace(place, node=offer.node, number=number + 1)
        owner, _, size = cluster.workspaces[place.id]
        cluster.workspaces[place.id] = (owner, offer.node, size)
        cluster.at_commit(True)
        if cluster.loses_answers:
            raise ClusterUnavailableError("the answer is lost")

    async def settle(self, session_key: str) -> Place | None:
        self._cluster.check()
        for key, each in list(self._cluster.moves.items()):
            if session_key in (key, each.source_key) and not each.committed:
                del self._cluster.moves[key]
        place = self._cluster.places.get(session_key)
        if place is None or place.node != self._node:
            return None
        return Place(self._node, 1, place.number)

    def arrived(self, session_key: str) -> Effect:
        return self._outbox.putting(Kind.ARRIVED, messages.arrived(session_key))

    async def fate(self, source_key: str) -> Fate:
        self._cluster.check()
        pending = any(each.source_key == source_key for each in self._cluster.moves.values())
        return Fate.PENDING if pending else Fate.THERE


class NamesInMemory:
    """One node's names."""

    def __init__(self, cluster: Cluster, node: str, outbox: Outbox) -> None:
        self._cluster = cluster
        self._node = node
        self._outbox = outbox

    async def take(self, name: TakenName) -> None:
        await self._outbox.delivered()
        self._cluster.check()
        for other, node in self._cluster.names.values():
            if replace(other, id=name.id) == name and other != name:
                raise ConflictError(f"there is {name.name} already, on the node {node}")
        self._cluster.names[name.id] = name, self._node
        if self._cluster.loses_answers:
            raise ClusterUnavailableError("the answer is lost")

    def freed(self, thing_id: str) -> Effect:
        return self._outbox.putting(Kind.FREED, messages.freed(thing_id))

    async def mine(self) -> frozenset[str]:
        await self._outbox.delivered()
        self._cluster.check()
        return frozenset(
            each for each, (_, node) in self._cluster.names.items() if node == self._node
        )


class NodePart:
    """One node's places, usage, delivery and membership."""

    epoch = 1
    state = "ready"

    def __init__(self, cluster: Cluster, node: str, outbox: Outbox, database: Database) -> None:
        self._cluster = cluster
        self._node = node
        self._outbox = outbox
        self._database = database
        self._joined: Callable[[], Awaitable[None]] | None = None

    async def claim(self, claim: Claim) -> Place:
        await self._outbox.delivered()
        cluster, name = self._cluster, claim.session_id.lower()
        cluster.check()
        if any(each.id == name for each in cluster.places.values()):
            raise ConflictError("the id is a live session's in this cluster", field="id")
        before = cluster.workspaces.get(name)
        more = claim.amounts
        if claim.amounts.workspaces:
            if before is not None and before[:2] != (claim.owner, self._node):
                raise ConflictError("the workspace is on another node", field="id")
            size = claim.amounts.workspace_bytes
            if before is not None:
                more = replace(more, workspaces=0, workspace_bytes=size - before[2])
            check_quota(claim.quota, cluster.usage(claim.owner), more)
            cluster.workspaces[name] = (claim.owner, self._node, size)
        else:
            check_quota(claim.quota, cluster.usage(claim.owner), more)
        cluster.places[claim.session_key] = Placed(
            name,
            claim.owner,
            self._node,
            claim.amounts,
            claim.summary,
            None if before is None else before[2],
        )
        cluster.claimed.append(claim.session_key)
        if cluster.loses_answers:
            raise ClusterUnavailableError("the answer is lost")
        return Place(self._node, self.epoch, 1)

    async def ship(self, events: Sequence[ShippedEvent]) -> None:
        self._cluster.check()
        if self._cluster.copies_away:
            raise ClusterUnavailableError("the cluster is away", retry_after=1)
        assert len(events) <= MOST_EVENTS
        for event in events:
            chain = self._cluster.chains.setdefault(event.session_key, [])
            if event.seq <= len(chain):
                assert chain[event.seq - 1] == event
            else:
                assert event.seq == len(chain) + 1, "an event is missing"
                chain.append(event)

    async def store(
        self, copy: WorkspaceCopy, pieces: AsyncIterator[bytes], quota: KeyLimits
    ) -> None:
        self._cluster.check()
        archive = [piece async for piece in pieces]
        assert all(len(piece) <= PIECE_BYTES for piece in archive)
        self._cluster.copies[copy.session_id] = copy, b"".join(archive)

    async def unclaim(self, session_key: str) -> None:
        await self._database.write(
            self._outbox.putting(Kind.UNCLAIMED, messages.unclaimed(session_key))
        )

    def changed(self, session_key: str, summary: Summary) -> Effect:
        return self._outbox.putting(Kind.CHANGED, messages.changed(session_key, summary))

    def rehandled(self, session_key: str, handle_sha256: str) -> Effect:
        return self._outbox.putting(Kind.REHANDLED, messages.rehandled(session_key, handle_sha256))

    def released(self, session_key: str, session_id: str) -> Effect:
        return self._outbox.putting(Kind.RELEASED, messages.released(session_key, "now"))

    def purged(self, workspace_id: str) -> Effect:
        return self._outbox.putting(Kind.PURGED, messages.purged(workspace_id))

    async def mine(self) -> Mine:
        await self._outbox.delivered()
        cluster = self._cluster
        cluster.check()
        sessions = {
            key: Holding(Place(each.node, self.epoch, each.number), self._amounts(each))
            for key, each in cluster.places.items()
            if each.node == self._node
        }
        own = [name for name, (_, node, _) in cluster.workspaces.items() if node == self._node]
        return Mine(sessions, own)

    def _amounts(self, placed: Placed) -> KeyUsage:
        if not placed.amounts.workspaces:
            return placed.amounts
        size = self._cluster.workspaces.get(placed.id, ("", "", 0))[2]
        return replace(placed.amounts, workspace_bytes=size)

    async def grow(self, owner: str, session_key: str, most: KeyUsage, quota: KeyLimits) -> None:
        await self._outbox.delivered()
        self._cluster.check()
        placed = self._cluster.places[session_key]
        now = self._amounts(placed)
        more = KeyUsage(
            0,
            most.cpus - now.cpus,
            most.memory_bytes - now.memory_bytes,
            0,
            most.workspace_bytes - now.workspace_bytes,
        )
        check_quota(quota, self._cluster.usage(owner), more)
        self._count(placed, most)

    def settled(self, owner: str, session_key: str, amounts: KeyUsage) -> Effect:
        return self._outbox.putting(Kind.SETTLED, messages.settled(session_key, amounts))

    async def add_volume(self, owner: str, volume_id: str, size: int, quota: KeyLimits) -> None:
        await self._outbox.delivered()
        self._cluster.check()
        check_quota(quota, self._cluster.usage(owner), KeyUsage(0, 0, 0, 1, size))
        self._cluster.workspaces[volume_id] = (owner, self._node, size)

    @property
    def renewed_at(self) -> float:
        return boottime() - self._cluster.silent_seconds

    def on_renewal(self, subscriber: Callable[[], None]) -> None:
        self._cluster.of_renewals.append(subscriber)

    async def used(self) -> dict[str, KeyUsage]:
        self._cluster.check()
        owners = {each.owner for each in self._cluster.places.values()}
        return {owner: self._cluster.usage(owner) for owner in owners}

    async def join(self, capacity: Capacity, joined: Callable[[], Awaitable[None]]) -> None:
        assert capacity.report().capacity.sandboxes > 0
        self._joined = joined
        if not self._cluster.away:
            await joined()

    async def deliver(self, told: Sequence[Message]) -> None:
        self._cluster.check()
        for message in told:
            last = self._cluster.applied.get(self._node, 0)
            if message.id <= last:
                self._cluster.repeated += 1
                continue
            assert message.id == last + 1, "a message is missing"
            self._cluster.applied[self._node] = message.id
            self._apply(Kind(message.kind), message.body)

    def _apply(self, kind: Kind, body: Mapping[str, Any]) -> None:
        cluster = self._cluster
        if kind is Kind.PURGED:
            name = body["workspace_id"].lower()
            if name in cluster.workspaces and cluster.workspaces[name][1] == self._node:
                del cluster.workspaces[name]
            return
        if kind is Kind.FREED:
            if cluster.names.get(body["id"], (None, ""))[1] == self._node:
                del cluster.names[body["id"]]
            return
        if kind is Kind.USER_END:
            return
        if kind is Kind.ARRIVED:
            cluster.moves.pop(body["session_key"], None)
            return
        placed = cluster.places.get(body["session_key"])
        if placed is None or placed.node != self._node:
            return
        if kind is Kind.REHANDLED:
            for name, (copy, archive) in cluster.copies.items():
                if copy.session_key == body["session_key"]:
                    told = replace(copy, handle_sha256=body["handle_sha256"])
                    cluster.copies[name] = told, archive
        elif kind is Kind.CHANGED:
            placed.summary = messages.read_summary(body["summary"])
        elif kind is Kind.SETTLED:
            self._count(placed, KeyUsage(**body["amounts"]))
        else:
            cluster.given_back.append(body["session_key"])
            del cluster.places[body["session_key"]]
            if kind is Kind.UNCLAIMED and placed.amounts.workspaces:
                if placed.workspace_before is None:
                    cluster.workspaces.pop(placed.id, None)
                else:
                    before = (placed.owner, placed.node, placed.workspace_before)
                    cluster.workspaces[placed.id] = before

    def _count(self, placed: Placed, amounts: KeyUsage) -> None:
        placed.amounts = amounts
        if amounts.workspaces and placed.id in self._cluster.workspaces:
            whose = placed.owner, placed.node
            self._cluster.workspaces[placed.id] = (*whose, amounts.workspace_bytes)
