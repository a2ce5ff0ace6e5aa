"""Erasures and exports of what an owner has, on this machine or on all nodes of a cluster.

An order to erase is on record before anything is erased, and a start goes on with what is left. In
a cluster, the node that is asked removes what all of them share, then asks the others for their
parts, and does its own.
"""

import asyncio
import logging
from collections.abc import AsyncIterator
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from orchestrator.cluster.shared import Connection
from orchestrator.ground.errors import ClusterUnavailableError, PaddockError
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.tasks import Rounds, Supervised, TaskName, Tasks
from orchestrator.operate.privacy import erasure_orders
from orchestrator.operate.privacy.erasure import Erasing, Erasure
from orchestrator.operate.privacy.erasure_orders import OwnerOrder, OwnerWork
from orchestrator.operate.privacy.owner_export import ExportedOwner, OwnerExports
from orchestrator.operate.privacy.owners_content import OwnersContent
from orchestrator.operate.privacy.owners_copies import OwnersCopies
from orchestrator.operate.privacy.owners_in_cluster import OwnersInCluster
from orchestrator.rules.access.keys import Principal

log = logging.getLogger(__name__)

_ROUND_SECONDS = 3600.0
_FAILED = "error"


class SharedOwners(NamedTuple):
    """What is needed of a cluster."""

    nodes: OwnersInCluster
    copies: OwnersCopies


@dataclass(frozen=True, slots=True)
class ErasedParts:
    """What all nodes together have erased; `missing` have not done their part yet."""

    erasure: Erasure
    missing: list[str]


class ExportedPart(NamedTuple):
    """A node's file; `node` None: there is no cluster."""

    node: str | None
    made: ExportedOwner


@dataclass(frozen=True, slots=True)
class ExportedParts:
    """The files of all nodes; `missing` have none."""

    parts: list[ExportedPart]
    missing: list[str]


class OwnerRequests:
    """One request is carried out at a time. It continues if its caller is cancelled."""

    def __init__(self, content: OwnersContent, cluster: SharedOwners | None) -> None:
        self._database = content.database
        self._erasing = Erasing(content)
        self._exports = OwnerExports(content)
        self._cluster = cluster
        self._changes = TaskScope("a request about an owner")
        self._rounds = Rounds(_ROUND_SECONDS)
        self._lock = asyncio.Lock()
        self._news = asyncio.Event()
        # Whether something was left undone at the last try.
        self._left = False
        self._task: Supervised | None = None

    def start(self, tasks: Tasks) -> None:
        """Goes on with what an earlier control plane has left, then with what other nodes ask."""
        self._news.set()
        forever = self._cluster is not None
        self._task = tasks.start(TaskName.ERASING, self._run, forever=forever, rounds=self._rounds)

    async def close(self) -> None:
        """Stops; the next start goes on."""
        if self._task is not None:
            await self._task.close()
        if self._cluster is not None:
            self._cluster.nodes.close()
        await self._changes.drain()

    async def update(self, connection: Connection) -> None:
        """Called when the cluster's database has news."""
        if self._cluster is not None:
            asked = await self._cluster.nodes.has_orders(connection)
            if asked or self._left:
                self._news.set()

    async def erase(self, principal: Principal, owner: str, reason: str) -> ErasedParts:
        """Erases it; `reason` is on record. What can't be removed now stays ordered.

        Raises: ConflictError while a session of the owner has not ended; AuditUnavailableError,
        StoreError, and the errors of what is removed, after which it can be asked for again;
        ClusterUnavailableError.
        """
        order = OwnerOrder(OwnerWork.ERASE, 0, owner, principal.name, reason)
        return await self._changes.shield(self._erase(order))

    async def export(self, principal: Principal, owner: str) -> ExportedParts:
        """Writes a file on each machine, which replaces an earlier one of that owner, on record.

        Raises: ConflictError while a session of the owner has not ended; CapacityExhaustedError;
        AuditUnavailableError; StoreError; StorageError; ClusterUnavailableError.
        """
        order = OwnerOrder(OwnerWork.EXPORT, 0, owner, principal.name)
        return await self._changes.shield(self._export(order))

    async def _erase(self, order: OwnerOrder) -> ErasedParts:
        async with self._lock:
            if self._cluster is not None:
                await self._cluster.nodes.check(order)
            await self._erasing.begin(order)
            done = Erasure()
            number = await self._carry_out(order, done)
        # Others may ask this node meanwhile.
        if self._cluster is None or number is None:
            return ErasedParts(done, [])
        found = await self._cluster.nodes.answers(number)
        for result in found.results.values():
            done.add(Erasure(**result))
        return ErasedParts(done, found.missing)

    async def _carry_out(self, order: OwnerOrder, done: Erasure) -> int | None:
        """Erases it here, and asks other nodes if the order is from here; the request's number."""
        number = None
        if order.number == 0:
            await self._erasing.erase_of_key(order, done)
            if self._cluster is not None:
                await self._cluster.copies.forget_of_key(order.owner)
                number = await self._cluster.nodes.ask(order)
        await self._erasing.erase_here(order, done)
        if self._cluster is not None:
            # What waits to be told may have content that the copies get otherwise.
            await self._cluster.nodes.delivered()
            node = None if order.number == 0 else self._cluster.nodes.node
            await self._cluster.copies.erase(order.owner, node)
        await self._erasing.end(order, done)
        return number

    async def _export(self, order: OwnerOrder) -> ExportedParts:
        if self._cluster is None:
            async with self._lock:
                made = await self._exports.write(order)
            return ExportedParts([ExportedPart(None, made)], [])
        nodes = self._cluster.nodes
        async with self._lock:
            await nodes.check(order)
            number = await nodes.ask(order)
            made = await self._exports.write(order, _named(self._cluster.copies, order.owner))
        found = await nodes.answers(number)
        await nodes.withdraw(number)
        parts = {nodes.node: made}
        missing = list(found.missing)
        for name, result in found.results.items():
            if _FAILED in result:
                missing.append(name)
            else:
                parts[name] = ExportedOwner(**result)
        return ExportedParts(
            [ExportedPart(*each) for each in sorted(parts.items())], sorted(missing)
        )

    async def _run(self) -> None:
        async with self._lock:
            await self._exports.remove_drafts()
        while True:
            await self._news.wait()
            self._news.clear()
            with self._rounds.round() as this:
                self._left = this.failed = not await self._go_on()
            if self._cluster is None:
                return

    async def _go_on(self) -> bool:
        """Goes on with what has begun, and does what other nodes ask; whether all of it is done."""
        done = True
        begun = await self._database.read(erasure_orders.begun)
        for order in begun:
            done &= await self._tried(order, begun=True)
        if self._cluster is not None:
            known = {order.number for order in begun}
            try:
                asked = await self._cluster.nodes.orders()
            except ClusterUnavailableError:
                return False
            for order in asked:
                if order.number not in known:
                    done &= await self._tried(order, begun=False)
        return done

    async def _tried(self, order: OwnerOrder, *, begun: bool) -> bool:
        try:
            result = await self._performed(order, begun=begun)
            if self._cluster is not None and order.number:
                await self._cluster.nodes.settle(order.number, result)
        except (PaddockError, StoreError) as error:
            log.error("to %s what %s has: not done yet: %s", order.kind, order.owner, error)
            return False
        return True

    async def _performed(self, order: OwnerOrder, *, begun: bool) -> dict[str, Any]:
        async with self._lock:
            if order.kind is OwnerWork.EXPORT:
                try:
                    return asdict(await self._exports.write(order))
                except PaddockError as error:
                    # Who asks again gets another one; nobody waits for a later one.
                    return {_FAILED: error.detail}
            done = Erasure()
            if not begun:
                await self._erasing.begin(order)
            elif order not in await self._database.read(erasure_orders.begun):
                return asdict(done)  # a request has carried it out meanwhile
            await self._carry_out(order, done)
            return asdict(done)


async def _named(copies: OwnersCopies, owner: str) -> AsyncIterator[tuple[str, str]]:
    """Lines of the export with the files that they belong to."""
    async for line, key in copies.chains(owner):
        yield line, f"copied/{key}.jsonl"
