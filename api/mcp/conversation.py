"""One client's conversation: what it has begun, and what it wants to be told."""

import asyncio
from dataclasses import dataclass, field

from api.mcp.log_messages import LogFilter
from api.mcp.messages import RequestId
from api.mcp.streams import Streams
from api.mcp.subscriptions import Subscriptions
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session

# Requests of one conversation that are answered at once.
MOST_REQUESTS = 16


@dataclass(slots=True, eq=False)
class Conversation:
    """What one client has begun in one session.

    `terminals` are those that its calls opened, by tool; they end with the conversation.
    """

    id: str
    principal: Principal
    session: Session
    version: str
    # The last event of the session's chain of which its client can know.
    position: int
    streams: Streams
    requests: dict[RequestId, asyncio.Task[None]] = field(default_factory=dict)
    terminals: dict[str, str] = field(default_factory=dict)
    opening: dict[str, asyncio.Lock] = field(default_factory=dict)
    subscriptions: Subscriptions = field(default_factory=Subscriptions)
    log: LogFilter = field(default_factory=LogFilter)
    # The event loop's time at which its latest request came, or was answered.
    used_at: float = 0.0

    @property
    def busy(self) -> bool:
        """Whether a request is being answered or a client listens."""
        return bool(self.requests) or self.streams.listening.has_reader

    def use(self) -> None:
        """A request has come, or was answered."""
        self.used_at = asyncio.get_running_loop().time()

    def belongs_to(self, principal: Principal, session: Session) -> bool:
        """Whether the caller began it, in that session."""
        return self.principal.name == principal.name and self.session is session

    def cancel(self, wanted: RequestId) -> bool:
        """Cancels a request; returns whether it was being answered."""
        task = self.requests.get(wanted)
        return task is not None and task.cancel()

    def end(self) -> None:
        """Cancels its requests and subscriptions, and ends what its client listens to."""
        for task in self.requests.values():
            task.cancel()
        self.subscriptions.close()
        self.streams.listening.end()
