"""Delivers the messages of one hook: from the record into a queue, and from there to its URL.

The queue and the position in the record are stored: a message is delivered at least once, whenever
the control plane ends.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from random import random

from orchestrator.ground.errors import ClusterUnavailableError
from orchestrator.ground.events import now as recorded_now
from orchestrator.ground.events import time_text
from orchestrator.ground.http_post import FAILURES, NameLookups, signed_post
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope, together
from orchestrator.ground.tasks import Rounds
from orchestrator.ground.traces.traceparent import TRACEPARENT
from orchestrator.operate.hooks import hook_rows
from orchestrator.operate.hooks.clock import WallClock
from orchestrator.operate.hooks.delivery_queue import DeliveryQueue
from orchestrator.operate.hooks.delivery_rows import (
    Delivery,
    DeliveryCounts,
    FailedTry,
    NewDelivery,
)
from orchestrator.operate.hooks.hook import Hook
from orchestrator.operate.hooks.messages import (
    body_of,
    delivery_id,
    messages_of,
    operations_for,
    without_content,
)
from orchestrator.record.audit.followers import Followers
from orchestrator.record.audit.query import Selection
from orchestrator.record.audit.query import owners as owners_of
from orchestrator.record.audit.recorded_event import Recorded

log = logging.getLogger(__name__)

# Messages that wait in the queue; the others wait in the record.
MOST_WAITING = 1000
# Messages that are being sent at the same time, of different sessions.
AT_ONCE = 4
TRY_SECONDS = 10.0
# The pauses between them take about three hours in all.
MOST_TRIES = 15
_FIRST_PAUSE = 1.0
LONGEST_PAUSE = 3600.0
KEPT = timedelta(days=7)
_MOST_ANSWER_BYTES = 64 * 1024
_MOST_ERROR = 200
_ROUND_SECONDS = 120.0
# Before the next try when the cluster's database is away.
_AWAY_SECONDS = 3.0


class HookDeliveries:
    """Runs as a supervised task. `counts` are those of the queue, as it was seen last."""

    def __init__(
        self,
        hook: Hook,
        queue: DeliveryQueue,
        database: Database,
        followers: Followers,
        metrics: Metrics,
        refusal: Callable[[Hook], str | None],
        clock: WallClock,
        *,
        whole: bool = True,
    ) -> None:
        """`refusal` returns why nothing may be sent to the hook at present, if so.

        `whole`: it gets what sessions contain.
        """
        self._whole = whole
        self.hook = hook
        self.counts = DeliveryCounts(0, 0)
        self.rounds = Rounds(_ROUND_SECONDS)
        self.queue = queue
        self._database = database
        self._followers = followers
        self._metrics = metrics
        self._refusal = refusal
        self._clock = clock
        self._lookups = NameLookups()
        # Something may be due; there may be room in the queue.
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        # The keys of sessions of which a message is being sent.
        self._sending: set[str] = set()

    async def run(self) -> None:
        """Delivers until it is cancelled. Raises: StoreError, AuditUnavailableError."""
        while True:
            try:
                await self._deliver()
            except ClusterUnavailableError as error:
                # What it has not looked at waits in the record.
                log.warning("hook %s: nothing is delivered: %s", self.hook.id, error.detail)
            await asyncio.sleep(_AWAY_SECONDS)

    async def _deliver(self) -> None:
        latest = self._clock.now() + LONGEST_PAUSE
        self.counts = await self.queue.limit_due(latest)
        position = await self._database.write(partial(hook_rows.position, hook_id=self.hook.id))
        posts = TaskScope("a delivery to a hook")
        try:
            async with together() as begin:
                begin(self._fill(position))
                begin(self._send_all(posts))
        finally:
            await posts.close()

    def wake(self, counts: DeliveryCounts) -> None:
        """Looks at the queue again, because somebody else has changed it."""
        self.counts = counts
        self._news.set()

    # From the record into the queue.

    async def _fill(self, position: int) -> None:
        wanted = Selection(owner=self.hook.key, operations=operations_for(self.hook.events))
        with self._followers.follow(wanted, position) as follower:
            while True:
                events = await follower.next()
                await self._wait_for_room()
                await self._enqueue(events)

    async def _wait_for_room(self) -> None:
        while self.counts.waiting >= MOST_WAITING:
            self._room.clear()
            await self._room.wait()

    async def _enqueue(self, events: Sequence[Recorded]) -> None:
        keys = {event.session_key for event in events}
        owners = await self._database.read(partial(owners_of, session_keys=keys))
        messages = [
            outgoing
            for event in events
            for outgoing in self._outgoing(event, owners.get(event.session_key))
        ]
        self.counts = await self.queue.enqueue(events[-1].id, messages, self._clock.now())
        self._news.set()

    def _outgoing(self, recorded: Recorded, owner: str | None) -> list[NewDelivery]:
        hook = self.hook
        try:
            event = recorded.event
        except ValueError:
            log.error("hook %s: event %d of the record is damaged", hook.id, recorded.id)
            return []
        found = []
        for each in messages_of(event, hook.events):
            message = each if self._whole else without_content(each)
            delivery = delivery_id(hook.id, recorded, message)
            body = body_of(delivery, event, message, owner)
            place = recorded.session_key, event["session_id"]
            found.append(NewDelivery(delivery, *place, message.type, body))
        return found

    # From the queue to the URL.

    async def _send_all(self, posts: TaskScope) -> None:
        while True:
            # Before the round, so that news during it are not missed.
            self._news.clear()
            with self.rounds.round():
                due_at = await self._round(posts)
            await self._clock.wait(self._news, due_at)

    async def _round(self, posts: TaskScope) -> float | None:
        """Begins to send what is due. Returns when more will be due; None: not before some news."""
        due_at = await self._next_due()
        now, free = self._clock.now(), AT_ONCE - len(self._sending)
        if due_at is None or due_at > now or not free:
            return due_at if free else None
        again_at = now + TRY_SECONDS + pause(1, random())  # noqa: S311 - no secret
        claimed = await self.queue.claim(frozenset(self._sending), free, now, again_at)
        for delivery in claimed:
            self._sending.add(delivery.session_key)
            posts.spawn(self._send(delivery))
        return await self._next_due() if len(self._sending) < AT_ONCE else None

    async def _next_due(self) -> float | None:
        found = await self.queue.look(frozenset(self._sending), self._clock.now())
        self.counts = found.counts
        if self.counts.waiting < MOST_WAITING:
            self._room.set()
        return found.due_at

    async def _send(self, delivery: Delivery) -> None:
        """Sends a message and stores how that went.

        Raises: StoreError, ClusterUnavailableError; then it is due again later, because it was
        claimed.
        """
        try:
            error = await self._try(delivery)
            await self._settle(delivery, error)
        finally:
            self._sending.discard(delivery.session_key)
            self._news.set()
            self._room.set()

    async def _try(self, delivery: Delivery) -> str | None:
        """Sends it once; returns what went wrong, if something did."""
        refused = self._refusal(self.hook)
        if refused is not None or self.hook.secret is None:
            return refused or "its secret is lost: remove the hook and add it again"
        body = delivery.body.encode()
        headers = {"Paddock-Event": delivery.type, "Paddock-Delivery": delivery.id}
        traceparent = json.loads(delivery.body).get(TRACEPARENT)
        if traceparent is not None:
            headers[TRACEPARENT] = traceparent
        try:
            posted = await signed_post(
                self.hook.url,
                self.hook.secret.get_secret_value().encode(),
                body,
                headers,
                seconds=TRY_SECONDS,
                most_bytes=_MOST_ANSWER_BYTES,
                lookups=self._lookups,
            )
        except TimeoutError:
            return f"no answer within {TRY_SECONDS:g} s"
        except FAILURES as error:
            return (str(error) or type(error).__name__)[:_MOST_ERROR]
        return None if 200 <= posted.status < 300 else f"status {posted.status}"

    async def _settle(self, delivery: Delivery, error: str | None) -> None:
        """Stores how a try went. Raises: StoreError, ClusterUnavailableError."""
        step, outcomes = self._outcome(delivery, error)
        self.counts = await step()
        for outcome in outcomes:
            self._metrics.hook_delivery(outcome)
        if "undelivered" in outcomes:
            log.error("hook %s: %s is undelivered: %s", self.hook.id, delivery.id, error)

    def _outcome(
        self, delivery: Delivery, error: str | None
    ) -> tuple[Callable[[], Awaitable[DeliveryCounts]], tuple[str, ...]]:
        """The step that stores how a try went, and the outcomes that are counted."""
        now, tries = self._clock.now(), delivery.tries + 1
        if error is None:
            return partial(self.queue.deliver, delivery, now), ("delivered",)
        failed = FailedTry(delivery, error, recorded_now())
        if tries < MOST_TRIES:
            due_at = now + pause(tries, random())  # noqa: S311 - no secret
            return partial(self.queue.postpone, failed, due_at), ("failed",)
        return partial(self.queue.give_up, failed, now, kept_since()), ("failed", "undelivered")


def pause(tries: int, chance: float) -> float:
    """Seconds to wait after that many tries, of which at least one was made. Pure.

    They double from 1 s to an hour. `chance`, from 0 to 1, takes away up to half, so that
    deliveries that failed together are not all tried again together.
    """
    longest = min(LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(tries - 1, 30))
    return longest * (1 - chance / 2)


def kept_since() -> str:
    """The time before which deliveries were given up that are kept no longer."""
    return time_text(datetime.now(UTC) - KEPT)
