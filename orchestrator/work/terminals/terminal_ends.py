"""Records the ends of terminals, once each, whatever the cause."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.events import EventDraft, Made, now
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.effect import both
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Threads
from orchestrator.record.audit.recorder import Recorder
from orchestrator.state import session_rows
from orchestrator.state.session import Session
from orchestrator.work.terminals import terminal_record, transcript
from orchestrator.work.terminals.evidence import DISK_SECONDS
from orchestrator.work.terminals.evidence_files import Digests, EvidenceError, finish_abandoned
from orchestrator.work.terminals.line_record import record_unasked
from orchestrator.work.terminals.open_terminal import OpenTerminal
from orchestrator.work.terminals.terminal import Status
from orchestrator.work.terminals.terminal_record import TerminalRecord, TerminalRow
from orchestrator.work.terminals.viewers import EndShown

log = logging.getLogger(__name__)

# Session, terminal id, reason.
OnEnd = Callable[[Session, str, str], Awaitable[None]]
# The reason of a program that ended by itself.
_BY_ITSELF = "exited"


class TerminalEnds:
    """Finishes terminals: the rest of the output, its event, the files, the event of the end.

    `on_end` is called for each before anything else learns of it.
    """

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        live: dict[str, OpenTerminal],
        on_end: OnEnd,
        threads: Threads,
    ) -> None:
        self._database = database
        self._recorder = recorder
        self._live = live
        self._on_end = on_end
        self._threads = threads
        self._tasks = TaskScope("the end of a terminal")

    def start(self, live: OpenTerminal) -> asyncio.Task[None]:
        """Finishes it as soon as no request to it is pending."""
        if live.finishing is None:
            live.finishing = self._tasks.spawn(self._finish(live))
        return live.finishing

    async def run(self, live: OpenTerminal) -> None:
        """Finishes it, and returns once its end is recorded."""
        await asyncio.shield(self.start(live))

    async def drain(self) -> None:
        """Waits for all that are being finished."""
        await self._tasks.drain()

    async def _finish(self, live: OpenTerminal) -> None:
        async with live.lock:
            reason = live.reason or _BY_ITSELF
            try:
                await live.terminal.stop_reading()
                reason = await self._read_rest(live)
                await self._record_late(live)
                await self._record(live, reason)
                FaultPoint.TERMINAL_CLOSED.reached()
                await self._on_end(live.session, live.id, reason)
            finally:
                live.evidence.release()
                live.status = Status.TERMINATED
                self._live.pop(live.id, None)
                live.session.terminals.discard(live.id)
                live.viewers.end(EndShown(live.ending, reason))
                live.closed.set()

    async def _record(self, live: OpenTerminal, reason: str) -> None:
        digests = await self._close_files(live, reason)
        final = live.record = live.final(reason, now(), digests)
        result = {"exit_code": final.exit_code, "interaction_count": live.interactions}
        effect = both(
            terminal_record.ending(final),
            session_rows.counting(live.session.key, live.evidence.bytes),
        )
        try:
            await self._recorder.record(live.session, _end(final, result), effect=effect)
        except PaddockError as error:
            # Its row has no end, so the next start records it.
            log.error("the end of terminal %s is not on record: %s", live.id, error.detail)

    async def _read_rest(self, live: OpenTerminal) -> str:
        """Reads what the agent still has of it; returns why it has ended."""
        if live.exit is not None and live.terminal.exit is None:
            try:
                await live.terminal.read_rest()
            except PaddockError as error:
                log.info("the rest of terminal %s is not read: %s", live.id, error.detail)
        return (live.ending.reason if live.ending else None) or live.reason or _BY_ITSELF

    async def _record_late(self, live: OpenTerminal) -> None:
        """Records the output since its last answer."""
        live.terminal.note_late()
        try:
            await record_unasked(self._recorder, live)
        except PaddockError as error:
            log.error("the last output of terminal %s is not on record: %s", live.id, error.detail)

    async def _close_files(self, live: OpenTerminal, reason: str) -> Digests | None:
        exit_code = live.ending.exit_code if live.ending else None
        try:
            fields = transcript.ended(reason, exit_code, live.interactions)
            live.evidence.note("CLOSED", fields, last=True)
            return await live.evidence.finish()
        except EvidenceError as error:
            log.error("terminal %s: %s", live.id, error.detail)
            return None

    async def record_abandoned(
        self, session: Session | None, row: TerminalRow, directory: Path, reason: str
    ) -> None:
        """Completes the record of a terminal whose control plane was killed."""
        digests = None
        try:
            finish = partial(finish_abandoned, directory, reason, row.record.interaction_count)
            digests = await self._threads.call(finish, DISK_SECONDS)
        except EvidenceError as error:
            log.error("terminal %s: %s", row.record.id, error.detail)
        except TimeoutError:
            log.error(
                "terminal %s: evidence can't be kept: the disk does not answer", row.record.id
            )
        final = replace(
            row.record,
            status=Status.TERMINATED,
            ended_at=now(),
            reason=reason,
            evidence=digests,
        )
        kept = session_rows.counting(row.session_key, digests.bytes if digests else 0)
        effect = both(terminal_record.ending(final), kept)
        if session is None:  # forgotten meanwhile, after recording everything possible
            await self._database.write(effect)
            return
        await self._recorder.record(session, _end(final, {}), effect=effect)


def _end(final: TerminalRecord, result: Mapping[str, object]) -> EventDraft:
    """The event of the end; the digests of its evidence are added to `result`."""
    digests = {} if final.evidence is None else final.evidence._asdict()
    return EventDraft(
        "pty.close",
        actor="system",
        args={"tool": final.tool, "reason": final.reason},
        made=Made({"terminal_id": final.id}, {**result, **digests}),
        stop=True,
    )
