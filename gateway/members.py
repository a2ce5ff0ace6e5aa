"""The nodes of the cluster as this gateway knows them: followed, and given up when lost."""

import asyncio
import logging
import random
import ssl
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import aclosing
from dataclasses import replace

from gateway.errors import unavailable
from gateway.upstream import Upstream
from orchestrator.cluster.directory import Directory, Node
from orchestrator.cluster.tls import Face
from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.task_scope import InUse

# Before the database is asked again that has not answered.
_PAUSE_SECONDS = 1.0
# After the database was away, no node has renewed its lease. They try it every 3 s, and give each
# try up after 5 s at most; until then, what was known before is still valid.
_RETURN_SECONDS = 10.0
# Between two lines about a node that can't be reached.
_QUIET_SECONDS = 60.0

log = logging.getLogger(__name__)


class Member:
    """One node in one of its lives: another epoch, or another address, is another member."""

    def __init__(self, node: Node, contexts: "Contexts") -> None:
        self.node = node
        self.exchanges = InUse()
        self._contexts = contexts
        self._upstreams: dict[Face, Upstream] = {}
        self._gone = False
        self._quiet_until = float("-inf")

    @property
    def name(self) -> str:
        """Its name, which its certificate has, too."""
        return self.node.name

    @property
    def url(self) -> str:
        """Where it is reached, without a slash at the end."""
        return self.node.report.url.rstrip("/")

    @property
    def alive(self) -> bool:
        """Whether its lease holds, as far as is known."""
        return self.node.alive and not self._gone

    def is_same(self, node: Node) -> bool:
        """Whether it is the node in the same life."""
        ours, theirs = self.node.report, node.report
        return (ours.name, ours.epoch, ours.url) == (theirs.name, theirs.epoch, theirs.url)

    def take(self, node: Node) -> None:
        """Takes what is newly known. The end of its lease ends every exchange with it."""
        if self.node.alive and not node.alive:
            log.warning("the node %s does not renew its lease", self.name)
            self.exchanges.cut()
        self.node = node

    def upstream(self, face: Face) -> Upstream:
        """The connections to one of its applications. Raises: NodeUnavailableError."""
        if self._gone:
            raise unavailable(self.name)
        found = self._upstreams.get(face)
        if found is None:
            found = self._upstreams[face] = Upstream(self.name, self.url, self._contexts(face))
        return found

    def complain(self, reason: str) -> None:
        """Says in the log, now and then, why the node can't be reached."""
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_SECONDS
            log.warning("the node %s can't be reached at %s: %s", self.name, self.url, reason)

    async def close(self) -> None:
        """Ends every exchange with it, and closes the connections."""
        self._gone = True
        self.exchanges.cut()
        for upstream in self._upstreams.values():
            await upstream.close()
        self._upstreams.clear()


# The TLS of connections to nodes; None: without, which only tests have.
Contexts = Callable[[Face], ssl.SSLContext | None]


class Members:
    """Follows the nodes. While the database is away, what was known last is still valid."""

    def __init__(
        self,
        directory: Directory,
        contexts: Contexts,
        told: Callable[[Sequence[Node]], None] = lambda nodes: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`told` gets the nodes whenever the database has said which they are."""
        self._clock = clock
        # Until then, nodes may not have renewed their leases yet.
        self._returning_until = float("-inf")
        self._directory = directory
        self._contexts = contexts
        self._told = told
        self._members: dict[str, Member] = {}
        self._chance = random.Random()  # noqa: S311 - nothing secret depends on it
        # Why the database can't be asked; None: it could, the last time.
        self.trouble: str | None = "the cluster's database has not been asked yet"

    @property
    def all(self) -> Iterable[Member]:
        """All of them, dead ones included."""
        return self._members.values()

    def named(self, name: str) -> Member | None:
        """The node of that name; None: the cluster has none."""
        return self._members.get(name)

    def any(self) -> Member | None:
        """One that answers, for what all nodes answer alike; None: there is none."""
        alive = [each for each in self._members.values() if each.alive]
        ready = [each for each in alive if each.node.takes_sessions]
        return self._chance.choice(ready or alive) if alive else None

    def some(self, most: int) -> list[Member]:
        """Different ones that answer, those first that take sessions; none if there is none."""
        alive = [each for each in self._members.values() if each.alive]
        self._chance.shuffle(alive)
        return sorted(alive, key=lambda each: not each.node.takes_sessions)[:most]

    async def follow(self) -> None:
        """Follows the nodes, until it is cancelled."""
        while True:
            try:
                async with aclosing(self._directory.following()) as told:
                    async for nodes in told:
                        await self._take(nodes)
            except ClusterUnavailableError as error:
                self._lose(error)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def refresh(self) -> None:
        """Asks the database once."""
        try:
            await self._take(await self._directory.nodes())
        except ClusterUnavailableError as error:
            self._lose(error)

    def _lose(self, error: ClusterUnavailableError) -> None:
        if self.trouble is None:
            log.warning("the nodes of the cluster can't be asked for: %s", error.detail)
        self.trouble = error.detail

    async def _take(self, nodes: Sequence[Node]) -> None:
        """What the database says of lost nodes ends their exchanges."""
        if self.trouble is not None and self._members:
            self._returning_until = self._clock() + _RETURN_SECONDS
        self.trouble = None
        returning = self._clock() < self._returning_until
        before, self._members = self._members, {}
        for node in nodes:
            known = before.get(node.name)
            if known is not None and known.is_same(node):
                del before[node.name]
                known.take(replace(node, alive=True) if returning and known.alive else node)
            else:
                known = Member(node, self._contexts)
            self._members[node.name] = known
        for member in before.values():
            log.warning("the node %s of epoch %d is gone", member.name, member.node.report.epoch)
            await member.close()
        self._told([each.node for each in self._members.values()])

    async def close(self) -> None:
        """Closes the connections to all of them."""
        for member in self._members.values():
            await member.close()
