"""One client's conversation: what it has begun, and what it wants to be told."""

import asyncio
from dataclasses import dataclass, field

from api.mcp.log_messages import LogFilter
from api.mcp.messages import RequestId
from api.mcp.streams import Stream, Streams
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
    # What is being answered; the work of each ends with it.
    requests: dict[RequestId, Stream] = field(default_factory=dict)
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

    @property
    def awaited(self) -> bool:
        """Whether a client waits for an answer, and has not left."""
        return any(each.has_reader for each in self.requests.values())

    def use(self) -> None:
        """A request has come, or was answered."""
        self.used_at = asyncio.get_running_loop().time()

    def belongs_to(self, principal: Principal, session: Session) -> bool:
        """Whether the caller began it, in that session."""
        return self.principal.name == principal.name and self.session is session

    def cancel(self, wanted: RequestId) -> bool:
        """Cancels a request; returns whether it was being answered."""
        stream = self.requests.get(wanted)
        return stream is not None and stream.cancel()

    def end(self) -> None:
        """Cancels its requests and subscriptions, and ends what its client listens to."""
        for stream in self.requests.values():
            stream.cancel()
        self.subscriptions.close()
        self.streams.listening.end()
