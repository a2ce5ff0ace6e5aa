"""Records every program that commands execute in turn, before it starts."""

import os
from collections.abc import Callable

from sandbox_agent.audit import EventBuffer
from sandbox_agent.confine import notify
from sandbox_agent.loop import READ, Loop

# Seen by a command as the failure of its own call; the rule is the parser's for a first word.
_RULE = "exec-allowlist"


class ExecRecorder:
    """Answers the listeners of all guards, one call after another.

    `executable` lists the programs, and directories of programs, that the kernel lets
    commands execute; None: any.
    """

    def __init__(
        self, loop: Loop, events: EventBuffer, uid: int, executable: frozenset[str] | None
    ) -> None:
        self._loop = loop
        self._events = events
        self._uid = uid
        self._executable = executable
        self._served: dict[int, Callable[[], str | None]] = {}
        self._waiting: set[int] = set()

    def watch(self, listener: int, command_id: Callable[[], str | None]) -> None:
        """Answers this listener until `forget`; `command_id` tells whose guard it is now."""
        self._served[listener] = command_id
        self._loop.watch(listener, READ, lambda _events: self._serve(listener))

    def forget(self, listener: int) -> None:
        """Closes the listener: whatever still waits there is refused by the kernel."""
        del self._served[listener]
        self._waiting.discard(listener)
        self._loop.unwatch(listener)
        os.close(listener)

    def _wait_for_room(self, listener: int) -> None:
        """Unrecorded, nothing is executed: callers wait until events have been stored."""
        self._loop.unwatch(listener)
        if not self._waiting:
            self._events.when_room(self._resume)
        self._waiting.add(listener)

    def _resume(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for listener in waiting:
            self.watch(listener, self._served[listener])

    def _serve(self, listener: int) -> None:
        if self._events.full:
            self._wait_for_room(listener)
            return
        notice = notify.receive(listener)
        if notice is None:
            return
        execution = notify.describe(listener, notice, self._uid)
        if execution is not None:
            self._record(execution, self._served[listener]())
        notify.let_go_on(listener, notice)

    def _record(self, execution: notify.Execution, command_id: str | None) -> None:
        refused = not self._permits(execution.real_path)
        self._events.emit(
            "command.exec",
            decision="deny" if refused else None,
            rule=_RULE if refused else None,
            command_id=command_id,
            args={
                "command_id": command_id,
                "path": execution.path,
                "real_path": execution.real_path,
                "argv": execution.argv,
            },
            result=None,
            error=f"the kernel refuses to execute {execution.path}" if refused else None,
            duration_ms=0,
        )

    def _permits(self, path: str) -> bool:
        allowed = self._executable
        if allowed is None or path in allowed:
            return True
        return any(path.startswith(f"{directory}/") for directory in allowed)
