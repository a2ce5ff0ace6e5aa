"""What runs in this sandbox, commands and terminals alike: whether more may, and when none does."""

from collections import OrderedDict
from collections.abc import Callable

from sandbox_agent.audit import EventBuffer
from sandbox_agent.errors import AgentError

# Ids that were ever started here; a second piece of work under the same id is refused.
_REMEMBERED_IDS = 65536


class Work:
    """Ids of what runs; at most `most` at once."""

    def __init__(self, events: EventBuffer, most: int) -> None:
        self._events = events
        self._most = most
        self._running: set[str] = set()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._refusing = False
        self._on_idle: Callable[[], None] | None = None

    def check(self, work_id: str) -> None:
        """Raises: AgentError where this may not be started now."""
        if self._refusing:
            raise AgentError("conflict", "the sandbox is shutting down")
        if self._events.full:
            raise AgentError("audit_unavailable", "audit events wait for the control plane")
        if work_id in self._seen:
            raise AgentError("conflict", f"{work_id} was started before")
        if len(self._running) >= self._most:
            raise AgentError("busy", f"{self._most} commands and terminals run already")

    def remember(self, work_id: str) -> None:
        """The id is used up."""
        self._seen[work_id] = None
        if len(self._seen) > _REMEMBERED_IDS:
            self._seen.popitem(last=False)

    def begin(self, work_id: str) -> None:
        """It runs."""
        self._running.add(work_id)

    def end(self, work_id: str) -> None:
        """It has ended, and its event is on its way."""
        self._running.remove(work_id)
        self._tell_idle()

    def refuse(self) -> None:
        """Nothing more may start."""
        self._refusing = True

    def when_idle(self, callback: Callable[[], None]) -> None:
        """Calls back once nothing runs: at once where that is so already."""
        self._on_idle = callback
        self._tell_idle()

    def _tell_idle(self) -> None:
        if not self._running and self._on_idle is not None:
            callback, self._on_idle = self._on_idle, None
            callback()
