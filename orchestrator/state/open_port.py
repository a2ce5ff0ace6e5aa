"""An open port of a session."""

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

from orchestrator.ground.events import time_text
from orchestrator.ground.task_scope import InUse

_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(slots=True, eq=False)
class OpenPort:
    """Clients may reach this port until `expires_at`.

    `opening` is a random name, for which alone links are valid. `opened_by` is the name of a key.
    """

    port: int
    opening: str
    opened_at: str
    opened_by: str = ""
    expires_at: datetime = _NEVER
    # Requests since the control plane started.
    requests: int = 0
    # The path below which its program serves, by its answers: "" or the port's own address.
    base: str | None = None
    in_use: InUse = field(default_factory=InUse)
    # Whether it is about to be closed: nothing more is served.
    closing: bool = False
    timer: asyncio.TimerHandle | None = None

    @property
    def expires(self) -> str:
        """`expires_at` in the form of events."""
        return time_text(self.expires_at)

    def end(self) -> None:
        """Ends its connections, and serves no others."""
        self.closing = True
        self.stop_timer()
        self.in_use.cut()

    def stop_timer(self) -> None:
        """Stops the timer of its expiry."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


@dataclass(slots=True, eq=False)
class SessionPorts:
    """The open ports of a session; the lock is held while one is opened or closed."""

    open: dict[int, OpenPort] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
