"""What an operation knows about its request, and work that outlives its client."""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from api.shape.access import Glass
from api.shape.operation import Operation
from api.shape.services import Services
from orchestrator.ground.errors import PaddockError, PermissionDeniedError, ValidationError
from orchestrator.ground.log_context import know_secrets
from orchestrator.ground.serving.problems import document
from orchestrator.ground.task_scope import TaskScope
from orchestrator.record.audit.archiving import Archiving
from orchestrator.rules.access.break_glass import RULE, BreakGlass
from orchestrator.rules.access.key_scopes import check_scope
from orchestrator.rules.access.keys import KeyRing, Principal, Role
from orchestrator.sessions.sessions import Sessions
from orchestrator.sessions.shares import Streams
from orchestrator.state.session import Session
from paddock.contract.problem import Problem

log = logging.getLogger(__name__)

T = TypeVar("T")

_POSITION = re.compile(r"[0-9]{1,18}")


class Work:
    """Tasks that continue after the client that asked for them has gone."""

    def __init__(self) -> None:
        self._tasks = TaskScope("work for a client that has gone")
        self._streams: set[asyncio.Task[Any]] = set()
        self._allowed: dict[asyncio.Task[Any], Callable[[], bool]] = {}
        # What is held between requests: whether it may be, and how it ends.
        self._held: dict[object, tuple[Callable[[], bool], Callable[[], object]]] = {}
        self.stopping = False

    async def complete(
        self, work: Coroutine[Any, Any, T], abandoned: Callable[[T], None] | None = None
    ) -> T:
        """Returns the result of `work`, which continues even if the caller is cancelled.

        In that case, `abandoned` receives the result.
        """
        return await self._tasks.shield(work, abandoned)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Starts work that `drain` waits for."""
        return self._tasks.begin(work)

    def detach(self, work: Coroutine[Any, Any, Any]) -> None:
        """Starts work that has no caller; a failure is logged."""
        self._tasks.spawn(work)

    def follow(self) -> None:
        """Marks the current task as endless: `stop` cancels it."""
        task = asyncio.current_task()
        if task is None:
            return
        if self.stopping:
            task.cancel()
        self._streams.add(task)
        task.add_done_callback(self._streams.discard)

    @contextmanager
    def while_allowed(self, allowed: Callable[[], bool]) -> Iterator[None]:
        """Cancels the current task when `recheck` finds that it is not `allowed` any more.

        An outer block's condition holds inside, too.
        """
        task = asyncio.current_task()
        if task is None:
            yield
            return
        outer = self._allowed.get(task)
        self._allowed[task] = allowed if outer is None else lambda: outer() and allowed()
        try:
            yield
        finally:
            if outer is None:
                del self._allowed[task]
            else:
                self._allowed[task] = outer

    @contextmanager
    def holding(self, allowed: Callable[[], bool], end: Callable[[], object]) -> Iterator[None]:
        """Calls `end` when `recheck` finds that it is not `allowed` any more, whichever task it is.

        `end` leaves the block.
        """
        held = object()
        self._held[held] = allowed, end
        try:
            yield
        finally:
            self._held.pop(held, None)

    def recheck(self) -> None:
        """Ends what callers have whose credential is no longer valid: answers, and what is held."""
        for task in [task for task, allowed in self._allowed.items() if not allowed()]:
            task.cancel()
        for end in [end for allowed, end in self._held.values() if not allowed()]:
            end()

    def stop(self) -> None:
        """Ends endless tasks. From now on, a disconnect does not count as the client's decision."""
        self.stopping = True
        for task in self._streams:
            task.cancel()

    async def drain(self) -> None:
        """Waits until all work is done."""
        await self._tasks.drain()


class Kept:
    """What operations keep between requests: one object of each class."""

    def __init__(self) -> None:
        self._found: dict[type[Any], Any] = {}

    def of(self, kind: type[T]) -> T:
        """The object of that class, which is made without arguments when it is first needed."""
        found = self._found.get(kind)
        if found is None:
            found = self._found[kind] = kind()
        return cast(T, found)


@dataclass(frozen=True, slots=True)
class Shared:
    """The services that every context needs; operations name others in their parameters."""

    sessions: Sessions
    streams: Streams
    archiving: Archiving
    services: Services
    keys: KeyRing
    glass: BreakGlass


@dataclass(frozen=True, slots=True)
class Context:
    """A request of a known caller that may use this operation.

    `path` has the path parameters. `wants_events`: the client asked for Server-Sent Events;
    `last_event` is the position of the last one that it received. `accepted` returns whether the
    caller's credential is still valid and sufficient. `glass`: what the operation touches of the
    session in the path. `mcp_session` and `mcp_version` are headers
    of the Model Context Protocol, `preconditions` those about versions and parts of files. `kept`
    is what all requests share. `spend` counts one more request of the caller; it raises
    RateLimitedError.
    """

    shared: Shared
    principal: Principal
    work: Work
    request_id: str
    path: Mapping[str, str]
    accepted: Callable[[], bool]
    wants_events: bool = False
    last_event: str | None = None
    mcp_session: str | None = None
    mcp_version: str | None = None
    preconditions: Mapping[str, str] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    spend: Callable[[], None] = lambda: None
    glass: Glass = Glass.INSIDE

    def of(self, operation: Operation) -> "Context":
        """The same request as one of that operation, which touches what it says of the session."""
        return self if self.glass is operation.glass else replace(self, glass=operation.glass)

    def allowed(self) -> bool:
        """Whether the caller may still do this: by its credential, and by an access if needed."""
        if not self.accepted():
            return False
        if not self.shared.glass.required or self.glass is Glass.OUTSIDE:
            return True
        session = self.shared.sessions.registry.get(self.path.get("session_id", ""))
        return session is None or not self.veils(session.key, session.owner)

    def veils(self, session_key: str, owner: str) -> bool:
        """Whether the content of that session is not for the caller."""
        return not self.shared.glass.allows(self.principal, session_key, owner)

    def check_inside(self, session: Session) -> None:
        """Raises: PermissionDeniedError if the caller needs break-glass access to that session."""
        self.shared.glass.check(self.principal, session.id, session.key, session.owner)

    @property
    def whole_for(self) -> str | None:
        """The owner whose sessions lists and searches show with their content; None: all shown."""
        admin = self.principal.role is Role.ADMIN
        return self.principal.name if admin and self.shared.glass.required else None

    @asynccontextmanager
    async def performing(
        self, operation: Operation, inputs: Mapping[str, Any]
    ) -> AsyncGenerator[Any]:
        """The operation's answer; its function gets the services that it names.

        If the operation needs the sandbox of the path's session, the session keeps it meanwhile.
        All ways to an operation lead here: HTTP, MCP and other protocols.

        Raises: PermissionDeniedError if the caller lacks the operation's scope; its errors.
        """
        check_scope(self.shared.keys.scopes(self.principal), operation.scope)
        services = self.shared.services.of_operation[operation.id]
        context = self.of(operation)
        with self.work.while_allowed(context.allowed) if context.whole_for else nullcontext():
            if not operation.restores:
                yield await operation.handler(context, **services, **inputs)
                return
            async with self.shared.sessions.suspensions.using(self.principal, context.session()):
                yield await operation.handler(context, **services, **inputs)

    @property
    def session_id(self) -> str:
        """The id in the path, whether the session exists or not."""
        return self.path["session_id"]

    def session(self) -> Session:
        """The session in the path, as far as the operation touches it.

        Raises: NotFoundError, also for a session of another owner; PermissionDeniedError if an
        admin needs break-glass access, or may not do this by one.
        """
        finder = self.shared.sessions.finder
        if self.glass is Glass.OUTSIDE:
            return finder.outside(self.principal, self.session_id)
        session = finder.find(self.principal, self.session_id)
        if self.glass is Glass.LASTING and self.shared.glass.needed(self.principal, session.owner):
            raise PermissionDeniedError(
                "break-glass access does not permit this, because it would outlive the access: "
                f"only {session.owner}, the owner of the session, may do it",
                rule=RULE,
            )
        return session

    async def record_key(self, session_id: str, incarnation: int | None) -> str:
        """The key of the record of a session with that id, however long ago it ended.

        Without an incarnation, it is the latest session's. Raises: NotFoundError, also for another
        owner's session, and if the record is in an archive; PermissionDeniedError as `session`.
        """
        key = await self.shared.sessions.finder.record_key(self.principal, session_id, incarnation)
        await self.shared.archiving.check_here(key)
        return key

    def resume_position(self, after: int | None) -> int | None:
        """The position to resume at: `Last-Event-ID`, `after` or None. Raises: ValidationError."""
        if self.last_event is None:
            return after
        return whole_position(self.last_event)

    @contextmanager
    def streaming(self, kind: str, session: Session | None = None) -> Iterator[None]:
        """Counts an open stream of that kind, for a session or for none.

        Raises: RateLimitedError if the session or the key has too many.
        """
        with self.shared.streams.open(self.principal, kind, session):
            yield

    def know_secrets(self) -> None:
        """Removes the secrets of the path's session from the log and from errors."""
        session = self.shared.sessions.registry.get(self.path.get("session_id", ""))
        if session is not None:
            know_secrets(session.secrets.cut)

    def problem(self, error: PaddockError) -> Problem:
        """The problem document for an error."""
        return Problem.model_validate(document(error, self.request_id))

    @property
    def looks(self) -> bool:
        """Whether the caller is a viewer, whose requests may change nothing for others."""
        return self.principal.role is Role.VIEWER


def whole_position(text: str) -> int:
    """The position that `Last-Event-ID` gives. Raises: ValidationError."""
    if not _POSITION.fullmatch(text):
        raise ValidationError("Last-Event-ID must be a whole number", field="Last-Event-ID")
    return int(text)
