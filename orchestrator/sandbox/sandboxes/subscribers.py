"""Subscribers to the messages of sandbox agents, by message name."""

from collections.abc import Awaitable, Callable

from orchestrator.host.link.messages import AgentEvent, Hello
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.state.sandbox import Sandbox
from orchestrator.state.session import Session
from sandbox_agent.decide.protocol import AGENT_OPERATIONS

Record = Callable[[Session, AgentEvent], Awaitable[tuple[AgentEvent, Recorded]]]
OfEvents = Callable[[Session, AgentEvent, Recorded], None]
OfHellos = Callable[[Session, Hello], None]
OfViolations = Callable[[Session, str], Awaitable[None]]
OfGone = Callable[[Sandbox], Awaitable[None]]
OfEnds = Callable[[Session], Awaitable[None]]


class Subscribers:
    """Calls the subscribers of a message one after the other, in the order of subscription.

    If a subscriber fails, later ones are not called, and the error goes to the sender of the
    message. A link then drops its agent and does not acknowledge the event.
    """

    def __init__(self, record: Record) -> None:
        """`record` records an event and returns its recorded form before any subscriber acts."""
        self._record = record
        self._of_events: dict[str, list[OfEvents]] = {name: [] for name in AGENT_OPERATIONS}
        self._of_hellos: list[OfHellos] = []
        self._of_violations: list[OfViolations] = []
        self._of_gone: list[OfGone] = []
        self._of_ends: list[OfEnds] = []

    def on_event(self, subscriber: OfEvents, *operations: str) -> None:
        """Subscribes to recorded events; without `operations`, to all.

        Raises: ValueError for an operation that no agent reports.
        """
        unknown = set(operations) - AGENT_OPERATIONS
        if unknown:
            raise ValueError(f"no agent reports {', '.join(sorted(unknown))}")
        for operation in operations or AGENT_OPERATIONS:
            self._of_events[operation].append(subscriber)

    def on_hello(self, subscriber: OfHellos) -> None:
        """Subscribes to agents that connected and were accepted."""
        self._of_hellos.append(subscriber)

    def on_violation(self, subscriber: OfViolations) -> None:
        """Subscribes to agents that broke the protocol: they were taken over, or are not ours."""
        self._of_violations.append(subscriber)

    def on_gone(self, subscriber: OfGone) -> None:
        """Subscribes to sandboxes that are silenced or about to be released; nothing runs there."""
        self._of_gone.append(subscriber)

    def on_end(self, subscriber: OfEnds) -> None:
        """Subscribes to sessions that have ended, with or without a sandbox."""
        self._of_ends.append(subscriber)

    # Called by links and sandboxes.

    async def event(self, session: Session, event: AgentEvent) -> None:
        """Records an event, then calls its subscribers. Raises: AuditUnavailableError."""
        event, recorded = await self._record(session, event)
        for subscriber in self._of_events[event.operation]:
            subscriber(session, event, recorded)

    def hello(self, session: Session, hello: Hello) -> None:
        """Reports that an agent connected."""
        for subscriber in self._of_hellos:
            subscriber(session, hello)

    async def violation(self, session: Session, reason: str) -> None:
        """Reports how an agent broke the protocol. Raises: AuditUnavailableError."""
        for subscriber in self._of_violations:
            await subscriber(session, reason)

    async def gone(self, sandbox: Sandbox) -> None:
        """Reports that nothing runs in the sandbox any more."""
        for subscriber in self._of_gone:
            await subscriber(sandbox)

    async def ended(self, session: Session) -> None:
        """Reports that the session has ended; its sandbox, if it had one, is silent."""
        for subscriber in self._of_ends:
            await subscriber(session)
