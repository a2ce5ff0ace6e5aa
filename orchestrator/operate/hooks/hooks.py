"""All hooks: who may add and see which, their changes on record, and their deliveries."""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from pydantic import SecretStr

from orchestrator.ground.errors import AuditUnavailableError, ConflictError, NotFoundError
from orchestrator.ground.events import EventDraft, now
from orchestrator.ground.metrics import Metrics
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.ground.store.effect import Effect
from orchestrator.ground.tasks import Supervised, TaskName, Tasks
from orchestrator.operate.hooks import delivery_rows, hook_rows
from orchestrator.operate.hooks.clock import WallClock
from orchestrator.operate.hooks.delivery_rows import Delivery, DeliveryCounts, DeliveryStatus
from orchestrator.operate.hooks.hook import Hook
from orchestrator.operate.hooks.hook_deliveries import HookDeliveries, kept_since
from orchestrator.operate.hooks.hook_rules import HookRules, WantedHook, manager_of, may_see
from orchestrator.record.audit.followers import Followers
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.secrets.sealer import Sealer
from orchestrator.rules.access.keys import ADMIN_NAME, Principal
from orchestrator.settings.operator_hooks import HOOK_PREFIX, OperatorHook, load_hook_secret

log = logging.getLogger(__name__)

# Added over the API: by one key, or by all admins; and by all together.
MOST_OF_KEY = 10
MOST_HOOKS = 100


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
    ) -> None:
        """Raises: ConfigError."""
        created = now()
        self._hooks = {name: _configured(name, hook, created) for name, hook in configured.items()}
        self._database = database
        self._recorder = recorder
        self._followers = followers
        self._rules = rules
        self._sealer = sealer
        self._metrics = metrics
        self._tasks = tasks
        self._clock = clock
        self._running: dict[str, _Running] = {}
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        """Continues where an earlier run ended. Raises: StoreError."""
        for hook, sealed in await self._database.read(hook_rows.stored):
            secret = self._sealer.open(sealed, hook_rows.bound(hook))
            if secret is None:
                log.error("the secret of the hook %s is lost: add it again", hook.id)
            self._hooks[hook.id] = replace(hook, secret=secret)
        try:
            await self._follow_configuration()
        except StoreError as error:
            # A full disk must not prevent the start; the tasks and the next start repeat it.
            log.error("hooks of the configuration: %s", error)
        for hook in self._hooks.values():
            self._begin(hook)

    async def _follow_configuration(self) -> None:
        """Clears hooks that left it; new ones get all messages from here on. Raises: StoreError."""
        known = frozenset(self._hooks)
        for gone in await self._database.read(partial(hook_rows.unknown, known=known)):
            await self._clear(gone)
        for hook in self._hooks.values():
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

    def counts(self, hook: Hook) -> DeliveryCounts:
        """How many of its messages wait, and how many were given up."""
        running = self._running.get(hook.id)
        return DeliveryCounts(0, 0) if running is None else running.deliveries.counts

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
        them; ConflictError if there are too many; AuditUnavailableError.
        """
        managed_by = manager_of(principal)
        self._rules.check(wanted, managed_by)
        async with self._changing:
            self._check_count(managed_by)
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
            sealed = self._sealer.seal(hook.secret, hook_rows.bound(hook))
            draft = _draft("hook.create", principal, hook)
            await self._record(hook, draft, hook_rows.adding(hook, sealed))
            self._hooks[hook.id] = hook
            self._begin(hook)
        return hook

    async def remove(self, principal: Principal, hook_id: str) -> Hook:
        """Removes a hook and its deliveries; nothing more is sent to it.

        Raises: NotFoundError; ConflictError if it is in the configuration; AuditUnavailableError
        if the removal is not on record.
        """
        if self.get(principal, hook_id).configured:
            raise ConflictError(f"{hook_id} is in the operator's configuration")
        await self._stop(hook_id)
        async with self._changing:
            hook = self.get(principal, hook_id)
            draft = _draft("hook.remove", principal, hook)._replace(stop=True)
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
        except StoreError as error:
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
        """Messages that are not delivered, in the order of the record. Raises: NotFoundError."""
        self.get(principal, hook_id)
        return await self._database.browse(
            partial(
                delivery_rows.page,
                hook_id=hook_id,
                status=status,
                after=after,
                limit=limit,
                kept_since=kept_since(),
            )
        )

    async def retry(self, principal: Principal, hook_id: str, delivery_id: str) -> Delivery:
        """Sends an undelivered message again, with as many tries as a new one.

        Raises: NotFoundError.
        """
        self.get(principal, hook_id)
        found = await self._database.write(
            partial(
                delivery_rows.try_again,
                hook_id=hook_id,
                delivery_id=delivery_id,
                now=self._clock.now(),
                kept_since=kept_since(),
            )
        )
        if found is None:
            raise NotFoundError(f"the hook has no undelivered message {delivery_id}")
        delivery, counts = found
        if hook_id in self._running:
            self._running[hook_id].deliveries.wake(counts)
        return delivery

    def _check_count(self, managed_by: str | None) -> None:
        """Raises: ConflictError."""
        added = [hook for hook in self._hooks.values() if not hook.configured]
        own = sum(hook.managed_by == managed_by for hook in added)
        if len(added) >= MOST_HOOKS or (managed_by is not None and own >= MOST_OF_KEY):
            most = MOST_HOOKS if len(added) >= MOST_HOOKS else MOST_OF_KEY
            raise ConflictError(
                f"there are {most} hooks already, which is the maximum: remove one",
                reason="too_many_hooks",
            )

    def _begin(self, hook: Hook) -> None:
        deliveries = HookDeliveries(
            hook, self._database, self._followers, self._metrics, self._rules.refusal, self._clock
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
        while await self._database.write(partial(delivery_rows.clear, hook_id=hook_id)):
            pass


def _configured(name: str, hook: OperatorHook, created: str) -> Hook:
    """Raises: ConfigError."""
    return Hook(
        id=name,
        url=hook.url,
        events=hook.events,
        key=hook.key,
        managed_by=None,
        set_by=None,
        created_at=created,
        secret=load_hook_secret(name, hook),
        configured=True,
    )


def _draft(operation: str, principal: Principal, hook: Hook) -> EventDraft:
    args = {"id": hook.id, "to": hook.origin, "events": list(hook.events), "key": hook.key}
    return EventDraft(operation, actor=principal.name, decision="allow", args=args)
