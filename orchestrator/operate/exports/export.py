"""One export: from the record to its destination, batch after batch, each until it is taken."""

import asyncio
import json
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import random
from typing import Literal, NamedTuple

from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.tasks import Rounds
from orchestrator.ground.threads import Threads
from orchestrator.operate.exports import export_rows
from orchestrator.operate.exports.destination import Destination, ExportedEvent, ExportError
from orchestrator.operate.exports.ocsf import OcsfSource, ocsf_event
from orchestrator.record.audit.ledger import Ledger
from orchestrator.record.audit.recorded_event import Recorded

log = logging.getLogger(__name__)

# A batch waits so long for more, which bounds how often positions are stored.
_GATHER_SECONDS = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
# A try: of the destination, the database, and the thread that converts.
_ROUND_SECONDS = 300.0
_CONVERT_SECONDS = 60.0


class ExportPlan(NamedTuple):
    """What is exported, in which form, and from where in the record on."""

    name: str
    form: Literal["ocsf", "record"] = "ocsf"
    at_end: bool = False


class Export:
    """Runs as a task. Its position is stored once a batch is taken; nothing else is kept.

    One batch is in memory at a time, however far the destination is behind.
    """

    def __init__(
        self,
        plan: ExportPlan,
        destination: Destination,
        database: Database,
        ledger: Ledger,
        source: OcsfSource,
        gather_seconds: float = _GATHER_SECONDS,
        pause: Callable[[float], float] = lambda longest: longest * (1 - random() / 2),  # noqa: S311
    ) -> None:
        """`pause` takes something away from a pause, so that not all try again together."""
        self.plan = plan
        self._destination = destination
        self._database = database
        self._ledger = ledger
        self._source = source
        self._gather_seconds = gather_seconds
        self._pause = pause
        self._threads = Threads("the forms of exported events", 1)
        self.rounds = Rounds(_ROUND_SECONDS)
        # The last event that was taken; None: not known yet.
        self.position: int | None = None
        self.failures = 0
        self.error: str | None = None

    async def run(self) -> None:
        """Works until it is cancelled. Raises: StoreError, AuditUnavailableError."""
        position = await self.find_position()
        while True:
            end = await self._ledger.wait(None, position)
            if end - position < export_rows.MOST_EVENTS:
                await asyncio.sleep(self._gather_seconds)
            events = await self._database.browse(partial(export_rows.batch, after=position))
            if events:
                await self._deliver(events)
            # Events that were archived are in no batch, and nothing waits for them.
            position = events[-1].id if events else end
            self.position = position
            await self._keep(position)

    async def find_position(self) -> int:
        """The position from which it goes on. Raises: StoreError."""
        begin = partial(export_rows.begin, name=self.plan.name, at_end=self.plan.at_end)
        self.position = await self._database.write(begin)
        return self.position

    async def close(self) -> None:
        """Releases the destination."""
        await self._destination.close()

    @property
    def behind(self) -> int:
        """At most so many events of the record are not taken yet."""
        end = self._ledger.end
        return 0 if end is None or self.position is None else max(0, end - self.position)

    async def _deliver(self, events: Sequence[Recorded]) -> None:
        """Tries until the batch is taken, after growing pauses."""
        convert = partial(_converted, events, self.plan, self._source)
        batch = await self._threads.call(convert, _CONVERT_SECONDS)
        longest = FIRST_PAUSE
        while batch and not await self._try(batch):
            await asyncio.sleep(self._pause(longest))
            longest = min(longest * 2, LONGEST_PAUSE)

    async def _try(self, batch: Sequence[ExportedEvent]) -> bool:
        with self.rounds.round() as this:
            try:
                await self._send(batch)
            except ExportError as error:
                this.failed = True
                self._failed(str(error))
                return False
        if self.error is not None:
            log.info("the export %s works again", self.plan.name)
            self.error = None
        return True

    async def _send(self, batch: Sequence[ExportedEvent]) -> None:
        await self._destination.send(batch)

    def _failed(self, why: str) -> None:
        self.failures += 1
        if why != self.error:
            log.error("the export %s: %s; it is tried again", self.plan.name, why)
        self.error = why

    async def _keep(self, position: int) -> None:
        """Stores the position. If it can't be, the next batch does, and a restart sends twice."""
        keep = partial(export_rows.acknowledge, name=self.plan.name, position=position)
        try:
            await self._database.write(keep)
        except StoreError as error:
            log.error("the position of the export %s: %s", self.plan.name, error)


def _converted(
    events: Sequence[Recorded], plan: ExportPlan, source: OcsfSource
) -> list[ExportedEvent]:
    """The events in their form. May take long; an event that is damaged is left out."""
    found = []
    for recorded in events:
        try:
            mapped = ocsf_event(recorded.event, recorded.session_key, source)
        except (ValueError, KeyError, TypeError, AttributeError):
            log.error("the export %s: event %d is damaged", plan.name, recorded.id)
            continue
        text = recorded.line
        if plan.form == "ocsf":
            text = json.dumps(mapped, separators=(",", ":"))
        severity = mapped["severity_id"]
        found.append(ExportedEvent(text.encode(), recorded.time, recorded.operation, severity))
    return found
