"""All hooks: who may add and see which, their changes on record, and their deliveries."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from pydantic import SecretStr

from orchestrator.ground.errors import (
    AuditUnavailableError,
    ClusterUnavailableError,
    ConflictError,
    NotFoundError,
)
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.tasks import Supervised, TaskName, Tasks
from orchestrator.operate.hooks import hook_rows
from orchestrator.operate.hooks.clock import WallClock
from orchestrator.operate.hooks.delivery_queue import DeliveryQueue, OwnQueue
from orchestrator.operate.hooks.delivery_rows import Delivery, DeliveryCounts, DeliveryStatus
from orchestrator.operate.hooks.hook import Hook
from orchestrator.operate.hooks.hook_deliveries import HookDeliveries, kept_since
from orchestrator.operate.hooks.hook_rules import (
    HookRules,
    WantedHook,
    check_count,
    configured_hook,
    manager_of,
    may_see,
)
from orchestrator.operate.hooks.shared_hooks import HookSnapshot, SharedHooks
from orchestrator.operate.hooks.shared_queue import SharedQueue
from orchestrator.record.audit.followers import Followers
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.secrets.sealer import Sealer
from orchestrator.rules.access.keys import ADMIN_NAME, Principal
from orchestrator.settings.operator_hooks import HOOK_PREFIX, OperatorHook

log = logging.getLogger(__name__)


class _Running(NamedTuple):
    deliveries: HookDeliveries
    task: Supervised


class Hooks:
    """Delivers from `start` to `close`. Each hook has its own task, so that none delays another."""

    def __init__(
        self,
        configured: Mapping[str, OperatorHook],
        rules: HookRules,
        database: Database,
        recorder: Recorder,
        followers: Followers,
        sealer: Sealer,
        metrics: Metrics,
        tasks: Tasks,
        clock: WallClock,
        shared: SharedHooks | None = None,
    ) -> None:
        """`shared` has those that were added over the API, if there is a cluster.

        Raises: ConfigError.
        """
        created = now()
        self._hooks = {
            name: configured_hook(name, hook, created) for name, hook in configured.items()
        }
        self._database = database
        self._recorder = recorder
        self._followers = followers
        self._rules = rules
        self._sealer = sealer
        self._metrics = metrics
        self._tasks = tasks
        self._clock = clock
        self._shared = shared
        self._version = -1
        self._running: dict[str, _Running] = {}
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Continues where an earlier run ended. Raises: StoreError."""
        stored = await self._database.read(hook_rows.stored)
        if self._shared is None:
            for hook, sealed in stored:
                self._hooks[hook.id] = hook_rows.opened(hook, sealed, self._sealer)
        else:
            for hook in (await _last_known(self._shared)).hooks:
                self._hooks[hook.id] = hook
        try:
            await self._follow_configuration()
        except StoreError as error:
            # A full disk must not prevent the start; the tasks and the next start repeat it.
            log.error("hooks of the configuration: %s", error)
        for hook in self._hooks.values():
            await self._begin(hook)

    async def changed(self, snapshot: HookSnapshot) -> None:
        """The cluster has these instead."""
        async with self._changing:
            await self._adopt(snapshot)

    async def _adopt(self, snapshot: HookSnapshot) -> None:
        """Begins and ends what is different. What is older than what is here changes nothing."""
        if snapshot.version < self._version:
            return
        self._version = snapshot.version
        there = {hook.id: hook for hook in snapshot.hooks}
        own = {name for name, hook in self._hooks.items() if hook.configured}
        for hook_id in self._hooks.keys() - there.keys() - own:
            await self._stop(hook_id)
            del self._hooks[hook_id]
            await self._queue(hook_id, configured=False).clear()
        for hook in (there[name] for name in there.keys() - self._hooks.keys()):
            self._hooks[hook.id] = hook
            await self._begin(hook)

    async def _follow_configuration(self) -> None:
        """Clears hooks that left it; new ones get all messages from here on. Raises: StoreError."""
        known = frozenset(self._hooks)
        for gone in await self._database.read(partial(hook_rows.unknown, known=known)):
            await self._clear(gone)
        for hook in self._hooks.values():
            # Those of the cluster begin with what was recorded here since they were added.
            if self._shared is None or hook.configured:
                await self._database.write(partial(hook_rows.position, hook_id=hook.id))

    async def close(self) -> None:
        """Stops delivering; the next start continues."""
        for running in self._running.values():
            await running.task.close()

    def visible(self, principal: Principal) -> list[Hook]:
        """The hooks that the caller manages; for admins all."""
        return [hook for hook in self._hooks.values() if may_see(principal, hook)]

    def get(self, principal: Principal, hook_id: str) -> Hook:
        """Raises: NotFoundError."""
        hook = self._hooks.get(hook_id)
        if hook is None or not may_see(principal, hook):
            raise NotFoundError(f"there is no hook {hook_id}")
        return hook

    async def counts(self, hook: Hook) -> DeliveryCounts:
        """How many of its messages wait, and how many were given up.

        Raises: ClusterUnavailableError.
        """
        running = self._running.get(hook.id)
        if running is None:
            return DeliveryCounts(0, 0)
        if self._shared is None or hook.configured:
            return running.deliveries.counts
        return await running.deliveries.queue.counts()

    def total(self) -> DeliveryCounts:
        """The counts of all hooks together."""
        each = [running.deliveries.counts for running in self._running.values()]
        return DeliveryCounts(
            sum(one.waiting for one in each), sum(one.undelivered for one in each)
        )

    def sends(self, hook_id: str) -> bool:
        """Whether anything may be sent to it."""
        return hook_id in self._running

    async def add(self, principal: Principal, wanted: WantedHook) -> Hook:
        """Adds a hook, which gets messages about what is recorded from now on.

        Raises: ValidationError for its URL or key; PermissionDeniedError if the caller may not use
        them; ConflictError if there are too many; AuditUnavailableError, ClusterUnavailableError.
        """
        managed_by = manager_of(principal)
        self._rules.check(wanted, managed_by)
        async with self._changing:
            if self._shared is not None:
                self._shared.check()
                await self._adopt(await self._shared.read())
            check_count(self._hooks.values(), managed_by)
            hook = Hook(
                id=f"{HOOK_PREFIX}{secrets.token_hex(8)}",
                url=wanted.url,
                events=wanted.events,
                key=wanted.key if managed_by is None else managed_by,
                managed_by=managed_by,
                set_by=principal.name,
                created_at=now(),
                secret=wanted.secret or SecretStr(secrets.token_urlsafe(32)),
            )
            assert hook.secret is not None  # noqa: S101 - just given
            draft = _draft("hook.create", principal, hook)
            write = partial(self._record, hook)
            if self._shared is None:
                sealed = self._sealer.seal(hook.secret, hook_rows.bound(hook))
                await write(draft, hook_rows.adding(hook, sealed))
            else:
                self._version = await self._shared.add(self._version, hook, draft, write)
            self._hooks[hook.id] = hook
            await self._begin(hook)
        return hook

    async def remove(self, principal: Principal, hook_id: str) -> Hook:
        """Removes a hook and its deliveries; nothing more is sent to it.

        Raises: NotFoundError; ConflictError if it is in the configuration; AuditUnavailableError
        if the removal is not on record; ClusterUnavailableError if other nodes may still send.
        """
        if self._shared is not None and hook_id not in self._hooks:
            await self.changed(await self._shared.read())  # added elsewhere just now
        if self.get(principal, hook_id).configured:
            raise ConflictError(f"{hook_id} is in the operator's configuration")
        await self._stop(hook_id)
        async with self._changing:
            hook = self.get(principal, hook_id)
            draft = _draft("hook.remove", principal, hook)._replace(stop=True)
            if self._shared is not None:
                self._version = await self._shared.remove(hook_id) or self._version
            try:
                await self._record(hook, draft, hook_rows.removing(hook_id))
            except AuditUnavailableError:
                raise AuditUnavailableError(
                    "nothing is sent to the hook any more, but that is not on record: remove it "
                    "again"
                ) from None
            del self._hooks[hook_id]
        try:
            await self._clear(hook_id)
            if self._shared is not None:
                await self._shared.clear()
        except (StoreError, ClusterUnavailableError) as error:
            log.warning("the next start removes deliveries of the hook %s: %s", hook_id, error)
        return hook

    async def deliveries(
        self,
        principal: Principal,
        hook_id: str,
        status: DeliveryStatus | None,
        after: int,
        limit: int,
    ) -> list[Delivery]:
        """Messages that are not delivered, in the order of the record.

        Raises: NotFoundError, ClusterUnavailableError.
        """
        queue = self._queue_of(self.get(principal, hook_id))
        return await queue.page(status, after, limit, kept_since())

    async def retry(self, principal: Principal, hook_id: str, delivery_id: str) -> Delivery:
        """Sends an undelivered message again, with as many tries as a new one.

        Raises: NotFoundError, ClusterUnavailableError.
        """
        queue = self._queue_of(self.get(principal, hook_id))
        found = await queue.try_again(delivery_id, self._clock.now(), kept_since())
        if found is None:
            raise NotFoundError(f"the hook has no undelivered message {delivery_id}")
        delivery, counts = found
        if hook_id in self._running:
            self._running[hook_id].deliveries.wake(counts)
        return delivery

    def _queue_of(self, hook: Hook) -> DeliveryQueue:
        return self._queue(hook.id, configured=hook.configured)

    def _queue(self, hook_id: str, *, configured: bool) -> DeliveryQueue:
        """Hooks of this node's configuration have their messages here."""
        if self._shared is None or configured:
            return OwnQueue(self._database, hook_id)
        return SharedQueue(self._shared.database, self._database, hook_id, self._shared.node)

    async def _begin(self, hook: Hook) -> None:
        if self._shared is not None and not hook.configured:
            begin = partial(hook_rows.begin_after, hook_id=hook.id, created_at=hook.created_at)
            await self._database.write(begin)
        deliveries = HookDeliveries(
            *(hook, self._queue_of(hook), self._database),
            self._followers,
            self._metrics,
            self._rules.refusal,
            self._clock,
            whole=self._rules.is_whole(hook),
        )
        task = self._tasks.start(TaskName.HOOKS, deliveries.run, rounds=deliveries.rounds)
        self._running[hook.id] = _Running(deliveries, task)

    async def _stop(self, hook_id: str) -> None:
        running = self._running.pop(hook_id, None)
        if running is not None:
            await running.task.close()

    async def _record(self, hook: Hook, draft: EventDraft, effect: Effect) -> None:
        await self._recorder.record_of_key(hook.managed_by or ADMIN_NAME, draft, effect)

    async def _clear(self, hook_id: str) -> None:
        await OwnQueue(self._database, hook_id).clear()


async def _last_known(shared: SharedHooks) -> HookSnapshot:
    """What the cluster has, or else this node's copy. Raises: StoreError."""
    try:
        await shared.clear()
        return await shared.read()
    except ClusterUnavailableError:
        return await shared.copy()


def _draft(operation: str, principal: Principal, hook: Hook) -> EventDraft:
    args = {"id": hook.id, "to": hook.origin, "events": list(hook.events), "key": hook.key}
    return EventDraft(operation, actor=principal.name, decision="allow", args=args)
