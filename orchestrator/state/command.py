"""One command, and what it came to."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from orchestrator.ground.traces.spans import OpenSpan
from orchestrator.host.link.chunks import Chunk

# As OpenTelemetry's conventions for processes name it.
_EXIT_CODE = "process.exit.code"


class KeptEvidence(NamedTuple):
    """The evidence kept of a command; `sha256` is None without any, and `reason` says why.

    `bytes` is its size. `truncated`: the command printed more than was kept. `left`: the file that
    the command wrote could not be removed from the workspace.
    """

    bytes: int
    sha256: str | None
    truncated: bool
    reason: str | None
    left: bool


@dataclass(slots=True)
class CommandExit:
    """A command's end: the agent's report, what is stored of its output, and its event.

    `exit_code` is None if the end is lost. `seq` and `hash` are the event's place in its chain,
    `time` is when it was recorded, empty if it was not.
    """

    exit_code: int | None = None
    signal: str | None = None
    truncated: bool = False
    cut_bytes: int = 0
    stored_bytes: int = 0
    output_bytes: int = 0
    timed_out: bool = False
    leftover_killed: int = 0
    duration_ms: int = 0
    reason: str | None = None
    error: str | None = None
    rule: str | None = None
    evidence: KeptEvidence | None = None
    seq: int = 0
    hash: str = ""
    time: str = ""


@dataclass(slots=True, eq=False)
class Command:
    """One command, without secrets in its words.

    `result` is set once `done` is; both only after the audit event is durable.
    """

    id: str
    argv: list[str]
    background: bool
    started_at: str
    done: asyncio.Future[None]
    result: CommandExit | None = None
    # Whether the agent was told, or may have been told, to start it.
    dispatched: bool = False
    # Pending while its loss is being recorded: that it never ran, or that its end is lost.
    losing: asyncio.Future[None] | None = None
    # Whether the agent was told to end it, and which signals it was told to send.
    ending: bool = False
    signals: set[int] = field(default_factory=set)
    # Whether its printed output is kept as evidence, which reads it at the end.
    captured: bool = False
    # Whether it waits to be given work, as the program of a code context between cells.
    waits: bool = False
    # The task that keeps evidence of it, if any.
    keeping: asyncio.Task[None] | None = None
    # Whether a caller waits for its end together with its output, and the output that came with the
    # end.
    collects: bool = False
    output: tuple[Chunk, ...] | None = field(default=None, repr=False)
    # Of the trace of the request that started it; None: that is not traced.
    span: OpenSpan | None = field(default=None, repr=False)
    # The break-glass access by which it was started; None: by none.
    access: str | None = None
    _over: asyncio.Event = field(default_factory=asyncio.Event, repr=False)

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.result is not None

    @property
    def settled(self) -> bool:
        """Whether it has ended and its evidence is complete."""
        return self.ended and (self.keeping is None or self.keeping.done())

    @property
    def stored(self) -> bool:
        """Whether its output was long and is stored in its sandbox."""
        return self.stored_bytes > 0

    @property
    def stored_bytes(self) -> int:
        """How much of its long output is stored, once it has ended."""
        return 0 if self.result is None else self.result.stored_bytes

    @property
    def output_bytes(self) -> int:
        """How much it printed, once it has ended."""
        return 0 if self.result is None else self.result.output_bytes

    def finish(self, result: CommandExit) -> None:
        """Sets the result and wakes all waiting callers; a second result changes nothing."""
        if self.result is None:
            self.result = result
            if self.span is not None:
                code = result.exit_code
                self.span.end({} if code is None else {_EXIT_CODE: code}, failed=code != 0)
            self.done.set_result(None)
            self._over.set()

    async def wait(self) -> None:
        """Returns once `done` is; a caller that is cancelled changes nothing."""
        await self._over.wait()


def exit_of(
    reported: dict[str, Any] | None,
    error: str | None,
    rule: str | None,
    duration_ms: int | None,
    seq: int,
    event_hash: str,
    time: str = "",
) -> CommandExit:
    """A command's end from its exit event; the agent's report is checked."""
    values = reported or {}
    signal_name, reason = values.get("signal"), values.get("reason")
    return CommandExit(
        exit_code=_integer(values.get("exit_code")),
        signal=signal_name if isinstance(signal_name, str) else None,
        truncated=values.get("truncated") is True,
        cut_bytes=_integer(values.get("cut_bytes")) or 0,
        stored_bytes=_integer(values.get("stored_bytes")) or 0,
        output_bytes=_integer(values.get("output_bytes")) or 0,
        timed_out=values.get("timed_out") is True,
        leftover_killed=_integer(values.get("leftover_killed")) or 0,
        duration_ms=duration_ms or 0,
        reason=reason if isinstance(reason, str) else None,
        error=error,
        rule=rule,
        seq=seq,
        hash=event_hash,
        time=time,
    )


def _integer(value: Any) -> int | None:
    # `parse_event` has already limited their size.
    return value if isinstance(value, int) and not isinstance(value, bool) else None
