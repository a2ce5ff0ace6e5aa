"""Takes the reports of a guard's broker: executions to record, signals, and misses."""

import os
import socket
from typing import Any

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.loop import READ, Loop
from sandbox_agent.decide.manifest import ReadManifest
from sandbox_agent.enforce.caller import UNKNOWN
from sandbox_agent.enforce.exec_record import ExecRecorder, Source
from sandbox_agent.enforce.notify import Notice
from sandbox_agent.enforce.reads import misses
from sandbox_agent.enforce.reads.misses import CALL, LISTENER, MISS, Miss, cut_path

RULE, CHANGED_RULE = "CTX-ALLOWLIST-001", "CTX-TOCTOU-001"
_NO_PID = 0
# A report about an earlier command of the guard comes soon after its end.
_MOST_REMEMBERED = 8


class Reports:
    """One broker's reports, as they come. `lost`: the broker has ended, so its guard is of no use.

    Without a broker, the kernel refuses every call that its commands make.
    """

    def __init__(
        self,
        loop: Loop,
        events: EventBuffer,
        recorder: ExecRecorder,
        manifest: ReadManifest,
        broker: socket.socket,
    ) -> None:
        self._loop = loop
        self._events = events
        self._recorder = recorder
        self._manifest = manifest
        self._broker = broker
        self._source: Source | None = None
        # Ids of the guard's latest commands, by its number for them.
        self._commands: dict[int, str] = {}
        # The number of the command that the broker serves, and its listener if the agent answers
        # any calls.
        self._listener: tuple[int, int | None] | None = None
        self.lost = False
        broker.setblocking(False)
        loop.watch(broker.fileno(), READ, lambda _events: self.take())

    def begin(self, number: int, command_id: str, source: Source) -> None:
        """Names the guard's next command."""
        self._source = source
        self._commands[number] = command_id
        if len(self._commands) > _MOST_REMEMBERED:
            del self._commands[min(self._commands)]

    def refused(self, number: int, program: str, *, changed: bool = False) -> None:
        """Reports that the command's own program, an absolute path, was refused.

        The broker does not see that call: the command's process is no program of the session yet.
        `changed`: the process itself has refused it, because of its content.
        """
        listed = self._manifest.may_execute(program)
        if changed or not listed:
            path = cut_path(os.fsencode(program))
            miss = Miss(path, "execve", UNKNOWN, _NO_PID, denied=True, changed=listed)
            self._record(number, miss, 1)

    @property
    def busy(self) -> bool:
        """Whether the broker still serves a command, or has not said yet that it is over."""
        return self._listener is not None

    def take(self) -> None:
        """Handles the reports that have arrived."""
        while not self.lost:
            try:
                message, descriptors, _, _ = socket.recv_fds(self._broker, misses.MOST_BYTES, 1)
            except BlockingIOError:
                return
            except ConnectionResetError:
                message, descriptors = b"", []
            if not message:
                self.close()
                return
            self._handle(*misses.decode(message), descriptors=descriptors)

    def close(self) -> None:
        """Ends the connection; calls that wait for the agent are refused."""
        if self.lost:
            return
        self.lost = True
        self._drop_listener()
        self._loop.unwatch(self._broker.fileno())
        self._broker.close()

    def _handle(self, kind: str, number: int, *more: Any, descriptors: list[int]) -> None:
        if kind == MISS:
            miss, count = more
            self._record(number, Miss(*miss), count)
        elif kind == CALL:
            (notice,) = more
            listener = None if self._listener is None else self._listener[1]
            if listener is not None and self._source is not None:
                self._recorder.answer(listener, self._source, Notice(*notice))
        elif kind == LISTENER:
            self._drop_listener()
            for each in descriptors:
                os.set_inheritable(each, False)
            self._listener = number, next(iter(descriptors), None)
        elif self._listener is not None and self._listener[0] == number:
            self._drop_listener()

    def _drop_listener(self) -> None:
        if self._listener is not None and self._listener[1] is not None:
            self._recorder.drop(self._listener[1])
        self._listener = None

    def _record(self, number: int, miss: Miss, count: int) -> None:
        self._events.emit(
            "read",
            decision="deny" if miss.denied else "allow",
            rule=CHANGED_RULE if miss.changed else RULE,
            command_id=self._commands.get(number),
            whole={"path": miss.path},
            args={
                "command_id": self._commands.get(number),
                "syscall": miss.syscall,
                "program": miss.program,
                "pid": miss.pid,
                "manifest_id": self._manifest.manifest_id,
                **({"repeats": count} if count > 1 else {}),
            },
            result=None,
            error="Content hash mismatch" if miss.changed else "Not in allowlist",
            duration_ms=0,
        )
