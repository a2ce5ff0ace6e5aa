"""The node of each session: looked up once, and again when it may have changed."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Sequence

from gateway.errors import unavailable
from gateway.members import Member, Members
from orchestrator.cluster.directory import MOST_LOOKED_UP, Directory, Hold, Where
from orchestrator.ground.task_scope import TaskScope

# At 200 bytes each; the least recently used are forgotten.
MOST_KNOWN = 100_000
# Statements at once; what is asked for meanwhile is in the next one.
_MOST_STATEMENTS = 2


class Routes:
    """Finds the nodes of sessions. Ids that differ in case only are one id."""

    def __init__(self, directory: Directory, members: Members, most: int = MOST_KNOWN) -> None:
        """`most` places are remembered."""
        self._directory = directory
        self._members = members
        self._most = most
        # In order of use.
        self._known: OrderedDict[str, str] = OrderedDict()
        # What is looked up, and what of it is in no statement yet.
        self._asking: dict[str, asyncio.Future[Where | None]] = {}
        self._waiting: deque[str] = deque()
        self._statements = 0
        self._scope = TaskScope("looking up nodes of sessions")

    def __len__(self) -> int:
        """How many places are remembered."""
        return len(self._known)

    async def node_of(self, session_id: str) -> tuple[Member | None, bool]:
        """The node to which requests about that id go, and whether it was only remembered.

        None: the cluster has never seen the id. Raises: NodeUnavailableError if the node does not
        answer, ClusterUnavailableError if nobody knows.
        """
        name = session_id.lower()
        known = self._known.get(name)
        if known is not None:
            member = self._members.named(known)
            if member is not None and member.alive:
                self._known.move_to_end(name)
                return member, True
            del self._known[name]
        return self._member(await self.look_up(session_id)), False

    async def look_up(self, session_id: str) -> Where | None:
        """What the database says about that id; who asks at the same time gets the same answer.

        Raises: ClusterUnavailableError.
        """
        name = session_id.lower()
        asked = self._asking.get(name)
        if asked is None:
            asked = self._asking[name] = asyncio.get_running_loop().create_future()
            self._waiting.append(name)
            if self._statements < _MOST_STATEMENTS:
                self._statements += 1
                self._scope.spawn(self._ask())
        return await asyncio.shield(asked)

    async def _ask(self) -> None:
        """Looks up what waits, many ids in one statement."""
        try:
            while self._waiting:
                most = min(len(self._waiting), MOST_LOOKED_UP)
                await self._ask_for([self._waiting.popleft() for _ in range(most)])
        finally:
            self._statements -= 1

    async def _ask_for(self, names: Sequence[str]) -> None:
        try:
            found = await self._directory.places_of(names)
            for name in names:
                where = found.get(name)
                if where is not None and where.hold is Hold.LIVE:
                    self.learn(name, where.node)
                else:
                    self._known.pop(name, None)
                self._asking[name].set_result(where)
        except Exception as error:  # noqa: BLE001 - who waits for an answer gets it
            for name in names:
                self._asking[name].set_exception(error)
                self._asking[name].exception()  # nobody may wait any more
        finally:
            for name in names:
                self._asking.pop(name).cancel()  # unless there is an answer

    def _member(self, where: Where | None) -> Member | None:
        if where is None:
            return None
        member = self._members.named(where.node)
        if member is None or not member.alive:
            raise unavailable(where.node)
        return member

    def learn(self, session_id: str, node: str) -> None:
        """Remembers where a session lives."""
        name = session_id.lower()
        self._known[name] = node
        self._known.move_to_end(name)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    async def moved_from(self, session_id: str, member: Member) -> Member | None:
        """The node that has the session if that one, which was only remembered, has not.

        Raises: as `node_of`.
        """
        found = self._member(await self.look_up(session_id))
        return None if found is None or found is member else found

    async def close(self) -> None:
        """Ends what is being looked up."""
        await self._scope.close()
