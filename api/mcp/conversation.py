"""One client's conversation: what it has begun, and notifications that wait for it."""

import asyncio
from dataclasses import dataclass, field

from api.mcp.messages import RequestId
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session

# Requests of one conversation that are answered at once.
MOST_REQUESTS = 16


class News:
    """Notifications that wait for the client, each kind once."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._changed = asyncio.Event()
        self.closed = False

    def add(self, method: str) -> None:
        """Adds a notification that has no parameters."""
        if method not in self._waiting:
            self._waiting.append(method)
        self._changed.set()

    def close(self) -> None:
        """No more will come."""
        self.closed = True
        self._changed.set()

    async def next(self) -> list[str]:
        """Waits for notifications; empty if no more will come."""
        await self._changed.wait()
        waiting, self._waiting = self._waiting, []
        if not self.closed:
            self._changed.clear()
        return waiting


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
    requests: dict[RequestId, asyncio.Task[None]] = field(default_factory=dict)
    terminals: dict[str, str] = field(default_factory=dict)
    opening: dict[str, asyncio.Lock] = field(default_factory=dict)
    # The event loop's time at which its latest request came, or was answered.
    used_at: float = 0.0
    # What is sent to the client that listens; None if none does.
    news: News | None = None

    @property
    def busy(self) -> bool:
        """Whether a request is being answered or a client listens."""
        return bool(self.requests) or self.news is not None

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
