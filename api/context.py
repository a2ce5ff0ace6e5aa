"""What an operation knows of its request, and work that outlives its client."""

import asyncio
import logging
import re
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from api.problems import document
from orchestrator.access.keys import Principal, Role
from orchestrator.control_plane import ControlPlane
from orchestrator.errors import PaddockError, ValidationError
from orchestrator.observe.log_context import know_secrets
from orchestrator.sessions.session import Session
from orchestrator.task_scope import TaskScope
from paddock.contract.problem import Problem

log = logging.getLogger(__name__)

T = TypeVar("T")

_POSITION = re.compile(r"[0-9]{1,18}")


class Work:
    """Tasks that go on when the client that asked for them is gone."""

    def __init__(self) -> None:
        self._tasks = TaskScope("work for a client that has gone")
        self._streams: set[asyncio.Task[Any]] = set()
        self._allowed: dict[asyncio.Task[Any], Callable[[], bool]] = {}
        self.stopping = False

    async def complete(
        self, work: Coroutine[Any, Any, T], abandoned: Callable[[T], None] | None = None
    ) -> T:
        """What `work` returns; it goes on when the caller is cancelled.

        `abandoned` then gets its result, for which nobody waits any more.
        """
        return await self._tasks.shield(work, abandoned)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts work that `drain` waits for."""
        return self._tasks.begin(work)

    def detach(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts work for which nobody waits; its failure is logged."""
        self._tasks.spawn(work)

    def follow(self) -> None:
        """Marks the current task as one without an end of its own: `stop` cancels it."""
        task = asyncio.current_task()
        if task is None:
            return
        if self.stopping:
            task.cancel()
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    @contextmanager
    def while_allowed(self, allowed: Callable[[], bool]) -> Iterator[None]:
        """The current task is cancelled when `recheck` finds that it is not `allowed` any more."""
        task = asyncio.current_task()
        if task is None:
            yield
            return
        self._allowed[task] = allowed
        try:
            yield
        finally:
            del self._allowed[task]

    def recheck(self) -> None:
        """Ends whatever is being answered to callers whose credential is void."""
        for task in [task for task, allowed in self._allowed.items() if not allowed()]:
            task.cancel()

    def stop(self) -> None:
        """Ends what follows something, and says that clients do not leave by their own will."""
        self.stopping = True
        for task in self._streams:
            task.cancel()

    async def drain(self) -> None:
        """Waits until nothing is under way any more."""
        await self._tasks.drain()


@dataclass(frozen=True, slots=True)
class Context:
    """A request whose caller is known and may do this operation.

    `path` has the parameters of the path. `wants_events`: the client asked for Server-Sent Events;
    `last_event` is the position of the last one that it has. `allowed` tells whether the caller's
    credential still holds, and still suffices.
    """

    plane: ControlPlane
    principal: Principal
    work: Work
    request_id: str
    path: Mapping[str, str]
    allowed: Callable[[], bool]
    wants_events: bool = False
    last_event: str | None = None

    @property
    def session_id(self) -> str:
        """The id in the path, whether there is such a session or not."""
        return self.path["session_id"]

    def session(self) -> Session:
        """The session in the path. Raises: NotFoundError, also when it is somebody else's."""
        return self.plane.sessions.find(self.principal, self.session_id)

    async def record_key(self, session_id: str, incarnation: int | None) -> str:
        """The key of what is on record of a session of that id, however long ago it ended.

        It is the latest's without a number. Raises: NotFoundError, also when it is somebody
        else's, and when its record is in an archive.
        """
        key = await self.plane.sessions.record_key(self.principal, session_id, incarnation)
        await self.plane.archiving.check_here(key)
        return key

    def resume_position(self, after: int | None) -> int | None:
        """Where to go on: `Last-Event-ID`, else `after`, else None. Raises: ValidationError."""
        if self.last_event is None:
            return after
        if not _POSITION.fullmatch(self.last_event):
            raise ValidationError("Last-Event-ID must be a whole number", field="Last-Event-ID")
        return int(self.last_event)

    @contextmanager
    def streaming(self, kind: str, session: Session | None = None) -> Iterator[None]:
        """Counts a stream of that kind, the session's or nobody's, while it is open.

        Raises: RateLimitedError where the session or the key has too many.
        """
        with self.plane.streams.open(self.principal, kind, session):
            yield

    def know_secrets(self) -> None:
        """Has those of the session in the path cut out of the log and of errors."""
        session = self.plane.sessions.registry.get(self.path.get("session_id", ""))
        if session is not None:
            know_secrets(session.secrets.cut)

    def problem(self, error: PaddockError) -> Problem:
        """How the client is told of an error."""
        return Problem.model_validate(document(error, self.request_id))

    @property
    def looks(self) -> bool:
        """Whether the caller only looks on: nothing may change for others."""
        return self.principal.role is Role.VIEWER
