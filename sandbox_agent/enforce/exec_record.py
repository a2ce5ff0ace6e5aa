"""Answers what the filters of guards report: records every program before it starts."""

import errno
import functools
import os
import sys
from collections import deque

from sandbox_agent.core.audit import EventBuffer
from sandbox_agent.core.loop import READ, Loop, Timer
from sandbox_agent.decide.protocol import MOST_UNACKNOWLEDGED_EXECS, MOST_UNACKNOWLEDGED_REPEATS
from sandbox_agent.enforce import notify
from sandbox_agent.enforce.caller import UNKNOWN, Process, Program
from sandbox_agent.enforce.filters import own_threads
from sandbox_agent.enforce.images import Images
from sandbox_agent.enforce.notify import Notice
from sandbox_agent.enforce.second_look import Expected, SecondLooks
from sandbox_agent.enforce.signal_requests import SignalRequests

# The command sees its own call fail; the rule is the one that the parser uses for a first word.
_RULE = "exec-allowlist"
# Counted repeats are reported after this time, or earlier with the next recorded event.
_REPEATS_SECONDS = 1.0
# A call that took longer is paid by its command: its next one waits for this many times as long.
_LONG_SECONDS = 0.001
_PAUSE = 3


class Held:
    """The execution of a command itself, which waits until the command may run.

    `call` is its listener and its notice, once the kernel has reported it.
    """

    def __init__(self) -> None:
        self.may_go = False
        self.call: tuple[int, Notice] | None = None

    def go_on(self) -> bool:
        """Lets the call go on if it may; returns whether it did. Raises: OSError."""
        if not self.may_go or self.call is None:
            return False
        notify.let_go_on(*self.call)
        return True


class Source:
    """The source of calls: one guard and its current command.

    `executable` lists the programs, and directories of programs, that the kernel lets the guard
    execute. None means any. Its processes descend from the process `root`.
    """

    def __init__(self, executable: frozenset[str] | None, root: int) -> None:
        self.root = root
        self.executable = executable
        self.command_id: str | None = None
        # The first execution of its command, if it is still to come.
        self.held: Held | None = None
        # The programs that its processes run.
        self.images = Images()
        # Numbers of the command's events that may not be durable yet.
        self._unacknowledged: deque[int] = deque()
        # The count that is not reported yet, and the last event that was reported individually.
        self._repeats = 0
        self._repeats_told = 0

    def begin(self, command_id: str, *, held: bool = False) -> None:
        """Starts recording for the guard's next command.

        `held`: its first execution waits for `ExecRecorder.go`. It is the command itself, which is
        on record already.
        """
        self.command_id = command_id
        self.held = Held() if held else None
        self.images = Images()
        self._unacknowledged.clear()
        self._repeats = self._repeats_told = 0

    def executed(self, event: int | None) -> None:
        """Counts one execution; `event` is the number of its event, None if it was only counted."""
        if event is None:
            self._repeats += 1
        else:
            self._unacknowledged.append(event)

    def may_execute(self, events: EventBuffer) -> bool:
        """Whether the number of events that are not durable yet is low enough."""
        while self._unacknowledged and self._unacknowledged[0] <= events.acknowledged:
            self._unacknowledged.popleft()
        if self._repeats >= MOST_UNACKNOWLEDGED_REPEATS // 2:
            if self._repeats_told > events.acknowledged:
                return False
            events.tell_repeats()
            self._repeats, self._repeats_told = 0, events.last
        return len(self._unacknowledged) < MOST_UNACKNOWLEDGED_EXECS


class ExecRecorder:
    """Answers the listeners of all guards, one call at a time."""

    def __init__(
        self, loop: Loop, events: EventBuffer, uid: int, *, undisturbed: bool = True
    ) -> None:
        """`undisturbed`: no signal interrupts a call that is reported."""
        self._loop = loop
        self._events = events
        self._uid = uid
        machine = os.uname().machine
        self._thread_calls = own_threads.names(machine)
        self._signals = SignalRequests(uid, machine, undisturbed=undisturbed)
        self._served: dict[int, Source] = {}
        # The calls that brokers have received, by listener.
        self._received: dict[int, deque[tuple[Source, Notice]]] = {}
        self._waiting: set[int] = set()
        # Listeners that pause, for the sake of others.
        self._pausing: set[int] = set()
        self._telling: Timer | None = None
        self._looks = SecondLooks(loop, self._look, self._tell_difference)

    def watch(self, listener: int, source: Source) -> None:
        """Answers this listener until `forget`."""
        self._served[listener] = source
        self._loop.watch(listener, READ, lambda _events: self._serve(listener))

    def forget(self, listener: int) -> None:
        """Closes the listener; the kernel then refuses the calls that still wait."""
        del self._served[listener]
        self._waiting.discard(listener)
        self._pausing.discard(listener)
        self._loop.unwatch(listener)
        os.close(listener)

    def stopping(self) -> None:
        """Tells the control plane that a command is being ended."""
        self._events.tell_stopping()

    def go(self, source: Source) -> None:
        """Lets the command of a source execute its program, now or when it comes to that."""
        if source.held is not None:
            source.held.may_go = True
            self._go_on(source, source.held)

    def answer(self, listener: int, source: Source, notice: Notice) -> None:
        """Answers one call that a broker has received, once it may be recorded."""
        self._received.setdefault(listener, deque()).append((source, notice))
        if listener not in self._waiting | self._pausing:
            self._answer_received(listener)

    def drop(self, listener: int) -> None:
        """Closes a listener of `answer`."""
        self._received.pop(listener, None)
        self._waiting.discard(listener)
        self._pausing.discard(listener)
        os.close(listener)

    def _wait(self, listener: int) -> None:
        """Stops serving until events are durable: almost nothing may run unrecorded."""
        if not self._waiting:
            self._events.when_acknowledged(self._resume)
        self._waiting.add(listener)

    def _resume(self) -> None:
        waiting, self._waiting = self._waiting, set()
        for listener in waiting:
            self._go_on_serving(listener)

    def _go_on_serving(self, listener: int) -> None:
        if listener in self._served:
            self.watch(listener, self._served[listener])
        else:
            self._answer_received(listener)

    def _pause(self, listener: int, seconds: float) -> None:
        """Serves others meanwhile."""
        self._pausing.add(listener)
        self._loop.unwatch(listener)
        self._loop.after(seconds, functools.partial(self._end_pause, listener))

    def _end_pause(self, listener: int) -> None:
        if listener in self._pausing:
            self._pausing.discard(listener)
            self._go_on_serving(listener)

    def _answer_received(self, listener: int) -> None:
        received = self._received[listener]
        while received and listener not in self._pausing:
            source, notice = received[0]
            if not self._may_record(source):
                self._wait(listener)
                return
            received.popleft()
            self._answer(listener, source, notice)

    def _may_record(self, source: Source) -> bool:
        return not self._events.full and source.may_execute(self._events)

    def _serve(self, listener: int) -> None:
        source = self._served[listener]
        if source.held is not None:
            # Nothing else runs under this guard yet, so the call is that of the command itself. A
            # signal may have interrupted it, and then it is reported again.
            notice = notify.receive(listener)
            source.held.call = None if notice is None else (listener, notice)
            self._go_on(source, source.held)
            return
        if not self._may_record(source):
            self._loop.unwatch(listener)
            self._wait(listener)
            return
        notice = notify.receive(listener)
        if notice is not None:
            self._answer(listener, source, notice)

    def _go_on(self, source: Source, held: Held) -> None:
        if held.go_on():
            source.held = None

    def _answer(self, listener: int, source: Source, notice: Notice) -> None:
        if notice.number in self._thread_calls:
            own_threads.answer(listener, notice, self._thread_calls[notice.number])
            return
        if notice.number in self._signals.calls:
            took = self._signals.answer(listener, notice, source.root)
            if took > _LONG_SECONDS:
                self._pause(listener, took * _PAUSE)
            return
        try:
            execution = notify.describe(listener, notice, self._uid)
        except OSError as error:
            notify.refuse(listener, notice, error.errno or errno.EFAULT)
            return
        except Exception as error:  # noqa: BLE001 - a call that can't be inspected fails
            print(f"execve call not inspected: {type(error).__name__}", file=sys.stderr, flush=True)
            notify.refuse(listener, notice, errno.EFAULT)
            return
        source.executed(self._record(execution, source))
        notify.let_go_on(listener, notice)
        self._look_again(execution, source)

    def _record(self, execution: notify.Execution, source: Source) -> int | None:
        """Records the execution; returns the event's number, None if it was only counted."""
        path, real_path, running = execution.path, execution.program.path, execution.running
        refused = real_path != UNKNOWN and not _permits(source.executable, real_path)
        problems = [f"the kernel refuses to execute {path}"] if refused else []
        if not source.images.agree(execution.process, running):
            problems.append(f"its caller runs {running.path}, not the program on record")
        source.images.record(execution.process, running, execution.program)
        told = self._events.emit_often(
            "command.exec",
            decision="deny" if refused else None,
            rule=_RULE if refused else None,
            command_id=source.command_id,
            args={
                "command_id": source.command_id,
                "path": path,
                "real_path": real_path,
                "by": running.path,
                "argv": execution.argv,
                **({} if execution.whole else {"argv_partly": True}),
            },
            result=None,
            error="; ".join(problems) or None,
            duration_ms=0,
        )
        if told is None and self._telling is None:
            self._telling = self._loop.after(_REPEATS_SECONDS, self._tell)
        return told

    def _look_again(self, execution: notify.Execution, source: Source) -> None:
        before, after = execution.running.images, execution.program.images
        if before is not None and after is not None:
            expected = Expected(source.command_id, execution.path, before, after)
            self._looks.expect(execution.process, expected)

    def _look(self, process: Process) -> Program | None:
        return notify.look_again(process, self._uid)

    def _tell_difference(self, expected: Expected, running: Program) -> None:
        self._events.emit_often(
            "command.exec",
            decision=None,
            rule=None,
            command_id=expected.command_id,
            args={
                "command_id": expected.command_id,
                "path": expected.path,
                "real_path": running.path,
                "by": running.path,
                "argv": [],
            },
            result=None,
            error=f"it runs {running.path}, not the program on record",
            duration_ms=0,
        )

    def _tell(self) -> None:
        self._telling = None
        self._events.tell_repeats()


def _permits(executable: frozenset[str] | None, path: str) -> bool:
    if executable is None or path in executable:
        return True
    return any(path.startswith(f"{directory}/") for directory in executable)
