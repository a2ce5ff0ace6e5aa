"""Opens the operator's floor: what works in the background, and what operators use."""

from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

from orchestrator.cluster.open import ClusterFloor
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.traces.spans import BeginSpan
from orchestrator.host.open import HostFloor
from orchestrator.operate.checks.readiness import Readiness
from orchestrator.operate.exports import export_rows
from orchestrator.operate.hooks.clock import WallClock
from orchestrator.operate.hooks.hook_rules import HookRules
from orchestrator.operate.hooks.hooks import Hooks
from orchestrator.operate.hooks.shared_hooks import SharedHooks
from orchestrator.operate.joining.left_here import say_what_is_left
from orchestrator.operate.moves.draining import Draining
from orchestrator.operate.moves.mover import Mover
from orchestrator.operate.moves.receiver import Receiver
from orchestrator.operate.moves.way import NodeWay
from orchestrator.operate.observe.gauges import Gauges, HookGauges, TemplateGauges
from orchestrator.operate.observe.usage import UsageHistory
from orchestrator.operate.operator.key_edits import KeyEdits
from orchestrator.operate.operator.reload import Reload
from orchestrator.operate.options import anchor, export, sign_ins, survive, telemetry
from orchestrator.operate.privacy.open_owners import open_owners
from orchestrator.operate.privacy.owner_requests import OwnerRequests
from orchestrator.operate.snapshots.snapshots import Snapshots
from orchestrator.operate.templates.preparation import Preparation
from orchestrator.operate.templates.templates import Templates
from orchestrator.operate.templates.warm_templates import WarmTemplates
from orchestrator.operate.users.ending import UserEnding
from orchestrator.record.audit.archiving import Archiving
from orchestrator.record.open import RecordFloor
from orchestrator.rules.access.last_uses import LastUses
from orchestrator.rules.open import RulesFloor
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sandbox.sandboxes.warm_pool import WarmPool
from orchestrator.sessions.open import SessionsFloor
from orchestrator.sessions.sessions import Sessions
from orchestrator.sessions.watcher import Watcher
from orchestrator.settings.settings import Settings
from orchestrator.work.open import WorkFloor


@dataclass(frozen=True, slots=True)
class OperateFloor:
    """`ready` says whether sessions can be created and recorded."""

    reload: Reload
    ready: Readiness
    snapshots: Snapshots
    mover: Mover
    receiver: Receiver
    draining: Draining
    templates: Templates
    warm_templates: WarmTemplates
    archiving: Archiving
    owner_requests: OwnerRequests
    usage: UsageHistory
    key_edits: KeyEdits
    last_uses: LastUses
    user_ending: UserEnding
    hooks: Hooks
    begin_span: BeginSpan | None


async def open_operate(
    settings: Settings,
    reload: Reload,
    ground: GroundFloor,
    host: HostFloor,
    rules: RulesFloor,
    cluster: ClusterFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    work: WorkFloor,
    floor: SessionsFloor,
    closers: AsyncExitStack,
) -> OperateFloor:
    """Starts archiving, anchoring, watching, reloading and hooks.

    Raises: ConfigError, AuditUnavailableError.
    """
    sessions, pool, tasks = floor.sessions, sandbox.pool, ground.tasks
    ground.metrics.add(
        Gauges(
            sessions,
            rules.levels,
            record.ledger,
            record.search_index,
            host.node,
            pool,
            sandbox.key_bytes,
            ground.lag,
            cluster.outbox,
        )
    )
    archiving = Archiving(
        ground.database,
        record.ledger,
        settings.archive_path,
        settings.state_dir / "evidence",
        record.room.add,
        record.room.check_disk,
        settings.export_hold_bytes,
    )
    archiving.start(settings.audit_retention, tasks)
    closers.push_async_callback(archiving.close)
    anchor(settings, ground, host, closers)
    ground.clock.on_change(rules.expiry.clock_changed)
    last_uses = LastUses(ground.database, rules.keys)
    closers.push_async_callback(last_uses.close)
    await last_uses.load()
    usage = UsageHistory(host.node, sandbox.workspaces, lambda: sessions.registry.live)
    usage.start(tasks)
    closers.push_async_callback(usage.close)
    watcher = Watcher(host.engine, record.recorder, sessions, pool, tasks)
    watcher.start()
    closers.push_async_callback(watcher.close)
    closers.push_async_callback(pool.close)
    pool.run(
        tasks,
        rules.levels,
        lambda: sessions.registry.with_sandbox,
        sessions.room.check,
        sessions.shares.slots.quiet,
    )
    open_network = sandbox.sandboxes.open_network
    closers.push_async_callback(open_network.close)
    open_network.run(tasks, lambda: _on_open_network(sessions, pool))
    reload.watch(record.recorder, tasks)
    closers.push_async_callback(reload.close)
    # They close before the sandboxes, which thus learn of no read that fails in the shutdown.
    closers.push_async_callback(work.captures.close)
    templates = await _templates(settings, rules, record, sandbox, work, sessions, closers)
    copies = sandbox.named_snapshots.ahead
    warm = WarmTemplates(templates, rules.template_files, rules.levels, pool, copies)
    warm.run(tasks)
    closers.push_async_callback(warm.close)
    ground.metrics.add(TemplateGauges(rules.template_files, warm))
    snapshots = Snapshots(
        settings,
        ground.database,
        record.recorder,
        host.node.storage,
        sandbox.workspaces,
        sessions,
        rules.session_policies,
    )
    mover = Mover(
        *(settings, cluster.directory, sessions, snapshots, record.secrets, NodeWay(settings))
    )
    closers.push_async_callback(mover.close)
    receiver = Receiver(snapshots, sessions.moves, cluster.moves)
    closers.push_async_callback(receiver.close)
    if settings.cluster is not None:
        survive(settings, ground, rules, cluster, record, sessions, snapshots, closers)
    hooks = await _hooks(settings, ground, rules, cluster, record, floor, closers)
    await ground.database.write(partial(export_rows.keep_only, names=settings.exports.keys()))
    if settings.exports:
        await export(settings, ground, host, record, closers)
    owner_requests = open_owners(
        settings, ground, host, cluster, record, sandbox, work, sessions, hooks, closers
    )
    user_ends = sign_ins(ground, rules, cluster, record, closers)
    if cluster.following is not None:
        cluster.following.start(tasks)
        closers.push_async_callback(cluster.following.close)
    return OperateFloor(
        reload,
        Readiness(settings, host.node, ground.database, reload, tasks, ground.lag, host.uids),
        snapshots,
        mover,
        receiver,
        Draining(settings.node, sessions, mover, record.ledger),
        templates,
        warm,
        archiving,
        owner_requests,
        usage,
        KeyEdits(settings, reload, record.recorder),
        last_uses,
        user_ends,
        hooks,
        telemetry(settings, ground, host, closers) if settings.otel else None,
    )


def _on_open_network(sessions: Sessions, pool: WarmPool) -> bool:
    """Whether a session's sandbox has the open network, or one that waits."""
    sandboxes = (session.sandbox for session in sessions.registry.sandboxed)
    return any(sandbox is not None and sandbox.network for sandbox in sandboxes) or any(
        shape.level.network == "open" for shape in pool.shapes
    )


async def _templates(
    settings: Settings,
    rules: RulesFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    work: WorkFloor,
    sessions: Sessions,
    closers: AsyncExitStack,
) -> Templates:
    """Opens the templates; what an earlier run was preparing is removed."""
    seconds = settings.template_timeout
    wall = seconds if settings.wall_timeout_max is None else min(seconds, settings.wall_timeout_max)
    snapshots = sandbox.named_snapshots
    templates = Templates(
        seconds,
        rules.template_files,
        rules.levels,
        sandbox.listed_images,
        sandbox.level_images,
        sandbox.sandboxes,
        sandbox.workspaces,
        sessions,
        snapshots,
        Preparation(sessions, work.files, work.executions, snapshots, wall),
        record.recorder,
    )
    closers.push_async_callback(templates.close)
    await templates.recover()
    return templates


async def _hooks(
    settings: Settings,
    ground: GroundFloor,
    rules: RulesFloor,
    cluster: ClusterFloor,
    record: RecordFloor,
    floor: SessionsFloor,
    closers: AsyncExitStack,
) -> Hooks:
    """Starts the hooks, which continue where an earlier run ended."""
    shared = None
    if cluster.shared is not None:
        node = settings.node or ""
        shared = SharedHooks(cluster.shared, ground.database, record.shared_sealer, node)
    hooks = Hooks(
        settings.hooks,
        HookRules(rules.keys, settings.hook_prefixes, rules.glass),
        ground.database,
        record.recorder,
        floor.followers,
        record.sealer,
        ground.metrics,
        ground.tasks,
        WallClock(),
        shared,
    )
    closers.push_async_callback(hooks.close)
    await hooks.start()
    if cluster.shared is not None:
        await say_what_is_left(settings.keys_path, ground.database, cluster.shared)
    if shared is not None and cluster.following is not None:
        cluster.following.add(shared.following(hooks.changed))
    ground.metrics.add(HookGauges(hooks))
    return hooks
