"""Events on their way to the ledger: numbered, and kept until they are durable there."""

import hashlib
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sandbox_agent import excerpts
from sandbox_agent.protocol import Message, notification
from sandbox_agent.repeats import Repeats

# New work is refused beyond this; the ends of what runs already always fit on top.
_MOST_EVENTS = 1024
# Like events that are recorded one by one: in a second, and at once.
_RATE, _BURST = 50, 200
# The members that have words of commands, paths, and what went wrong with them.
_TELLING = ("args", "result", "error")


class EventBuffer:
    """The agent's outgoing audit events, in order.

    `send` transmits one message and drops it while there is no connection; after a
    reconnect `replay` sends what the control plane has not committed. `cut` takes secrets out
    of what is told; what is long is told by its beginning, size and digest.
    """

    def __init__(
        self,
        boot_id: str,
        send: Callable[[Message], None],
        cut: Callable[[Any], Any] = lambda value: value,
    ) -> None:
        self._boot_id = boot_id
        self._send = send
        self._cut = cut
        self._seq = 0
        self._repeats: Repeats[tuple[str, dict[str, object]]] = Repeats(_RATE, _BURST)
        self._pending: deque[tuple[int, Message]] = deque()
        self._on_empty: list[Callable[[], None]] = []
        self._on_acknowledged: list[Callable[[], None]] = []
        # The number up to which every event is durable.
        self.acknowledged = 0

    @property
    def full(self) -> bool:
        """Whether new work must wait until the control plane has caught up."""
        return len(self._pending) >= _MOST_EVENTS

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._seq

    def __len__(self) -> int:
        return len(self._pending)

    def emit(self, operation: str, once: Message | None = None, **fields: object) -> int:
        """Records that `operation` happened; returns the event's number.

        `once` are members that are not repeated on another connection.
        """
        self.tell_repeats()
        return self._emit(operation, self._told(fields), once)

    def emit_often(self, operation: str, **fields: object) -> int | None:
        """The same for what programs may do again and again: above a rate repeats are counted.

        Returns None where it was not recorded by itself: `tell_repeats` is to be called soon.
        """
        # What is kept of it is bounded, as what is told is.
        event = operation, self._told(fields)
        like = hashlib.sha256(repr(event).encode("utf-8", "backslashreplace")).hexdigest()
        told = self._repeats.take(like, event, time.monotonic())
        if self._repeats.crowded:
            self.tell_repeats()
        return self._emit(*event) if told else None

    def tell_repeats(self) -> None:
        """Records how often it happened again: one event for each, `args.repeats` times."""
        for (operation, fields), count in self._repeats.drain():
            args = fields["args"]
            if isinstance(args, dict):
                self._emit(operation, {**fields, "args": {**args, "repeats": count}})

    def _told(self, fields: dict[str, object]) -> dict[str, object]:
        """The fields as they are told: without secrets, what is long by its beginning."""
        short = {name: _short(self._cut(fields[name])) for name in _TELLING if name in fields}
        return {**fields, **short}

    def _emit(self, operation: str, fields: dict[str, object], once: Message | None = None) -> int:
        self._seq += 1
        event: Message = {
            "boot_id": self._boot_id,
            "seq": self._seq,
            "operation": operation,
            "time": time.time(),
            **fields,
        }
        self._pending.append((self._seq, notification("event", event)))
        self._send(notification("event", event | (once or {})))
        return self._seq

    def acknowledge(self, seq: int) -> None:
        """Forgets events up to and including `seq`: they are durable."""
        while self._pending and self._pending[0][0] <= seq:
            self.acknowledged, _ = self._pending.popleft()
        waiting, self._on_acknowledged = self._on_acknowledged, []
        for callback in waiting:
            callback()
        if not self._pending:
            waiting, self._on_empty = self._on_empty, []
            for callback in waiting:
                callback()

    def replay(self, committed: int) -> None:
        """Sends again what came after `committed`."""
        self.acknowledge(committed)
        for _, message in self._pending:
            self._send(message)

    def when_empty(self, callback: Callable[[], None]) -> None:
        """Calls back once everything is durable: at once where it is already."""
        if self._pending:
            self._on_empty.append(callback)
        else:
            callback()

    def when_acknowledged(self, callback: Callable[[], None]) -> None:
        """Calls back once, with the next word of what is durable."""
        self._on_acknowledged.append(callback)


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return excerpts.text(value)
    return excerpts.excerpts(value) if isinstance(value, dict) else value
