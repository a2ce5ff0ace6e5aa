"""Numbers audit events and keeps each one until the ledger has it durably."""

import time
from collections import deque
from collections.abc import Callable
from typing import Any

from sandbox_agent.decide import excerpts
from sandbox_agent.decide.frames import notification
from sandbox_agent.decide.protocol import Message
from sandbox_agent.decide.repeats import Repeats

# While so many events are pending, new work is refused. Running work can always record its end.
_MOST_EVENTS = 1024
# Identical events that are recorded individually: per second, and in one burst.
_RATE, _BURST = 50, 200
# The members that contain command words, paths and error texts.
_TEXT_MEMBERS = ("args", "result", "error")


class EventBuffer:
    """The agent's outgoing audit events, in order.

    `send` transmits one message, and drops it while there is no connection. After a reconnect,
    `replay` sends the events that the control plane has not committed. `cut` removes secrets from
    what is recorded. A long value is recorded as its beginning, size and digest.
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
        # Every event up to this number is durable.
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

    def emit(
        self,
        operation: str,
        once: Message | None = None,
        whole: dict[str, str] | None = None,
        **fields: object,
    ) -> int:
        """Records that `operation` happened and returns the event's number.

        `once` has members that are sent only once: a replay does not include them. `whole` has
        further members of `args`, which are not shortened.
        """
        self.tell_repeats()
        recorded = self._recordable(fields)
        if whole is not None:
            recorded["args"] = {**self._cut(whole), **_members(recorded["args"])}
        return self._emit(operation, recorded, once)

    def emit_often(self, operation: str, **fields: object) -> int | None:
        """Records an operation that programs can repeat; above a rate, repeats are only counted.

        Returns None if the event was only counted. The caller must then call `tell_repeats` soon.
        """
        # Shorten it first, so that what is kept for counting is bounded too.
        event = operation, self._recordable(fields)
        # Python's keyed hash: no program can find two events that share it.
        like = str(hash(repr(event)))
        individually = self._repeats.take(like, event, time.monotonic())
        if self._repeats.crowded:
            self.tell_repeats()
        return self._emit(*event) if individually else None

    def tell_repeats(self) -> None:
        """Records one event for each counted operation, with `args.repeats` as the count."""
        for (operation, fields), count in self._repeats.drain():
            args = fields["args"]
            if isinstance(args, dict):
                self._emit(operation, {**fields, "args": {**args, "repeats": count}})

    def _recordable(self, fields: dict[str, object]) -> dict[str, object]:
        """The fields without secrets, with long values shortened."""
        short = {name: _short(self._cut(fields[name])) for name in _TEXT_MEMBERS if name in fields}
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
        """Forgets the events up to and including `seq`, which are durable."""
        while self._pending and self._pending[0][0] <= seq:
            self.acknowledged, _ = self._pending.popleft()
        waiting, self._on_acknowledged = self._on_acknowledged, []
        for callback in waiting:
            callback()
        if not self._pending:
            waiting, self._on_empty = self._on_empty, []
            for callback in waiting:
                callback()

    def tell_stopping(self) -> None:
        """Tells the control plane that something is being ended; this is not recorded."""
        self._send(notification("stopping", {}))

    def replay(self, committed: int) -> None:
        """Sends the events after `committed` again."""
        self.acknowledge(committed)
        for _, message in self._pending:
            self._send(message)

    def when_empty(self, callback: Callable[[], None]) -> None:
        """Calls back once every event is durable, at once if that is already so."""
        if self._pending:
            self._on_empty.append(callback)
        else:
            callback()

    def when_acknowledged(self, callback: Callable[[], None]) -> None:
        """Calls back once, at the next acknowledgement."""
        self._on_acknowledged.append(callback)


def _members(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return excerpts.text(value)
    return excerpts.excerpts(value) if isinstance(value, dict) else value
