"""Opens what only some settings ask for: anchors, exports, telemetry, sign-in, survival."""

from contextlib import AsyncExitStack
from functools import partial

from orchestrator.cluster.open import ClusterFloor
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.open import GroundFloor
from orchestrator.ground.traces.spans import BeginSpan
from orchestrator.host.open import HostFloor
from orchestrator.operate.snapshots.snapshots import Snapshots
from orchestrator.operate.snapshots.taking_over import TakingOver
from orchestrator.operate.snapshots.workspace_copying import WorkspaceCopying
from orchestrator.operate.users.ending import UserEnding
from orchestrator.operate.users.shared_ends import SharedEnds
from orchestrator.operate.users.sign_in_record import SignInRecord
from orchestrator.record.audit.anchoring import Anchoring, load_key
from orchestrator.record.open import RecordFloor
from orchestrator.rules.open import RulesFloor
from orchestrator.sessions.sessions import Sessions
from orchestrator.settings.settings import Settings


def telemetry(
    settings: Settings, ground: GroundFloor, host: HostFloor, closers: AsyncExitStack
) -> BeginSpan:
    """Begins to send traces and metrics. Raises: ConfigError."""
    try:
        from orchestrator.operate.telemetry.sending import OtlpSending
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"PADDOCK_OTEL: {error.name} is not installed: `pip install 'paddock-server[otel]'`"
        ) from None
    telemetry = OtlpSending(
        settings.otel_sample, settings.otel_interval, host.instance, ground.metrics
    )
    closers.push_async_callback(telemetry.close)
    telemetry.start(ground.tasks)
    return telemetry.spans.begin


def survive(
    settings: Settings,
    ground: GroundFloor,
    rules: RulesFloor,
    cluster: ClusterFloor,
    record: RecordFloor,
    sessions: Sessions,
    snapshots: Snapshots,
    closers: AsyncExitStack,
) -> None:
    """Copies this node's sessions to the cluster, and takes over those of lost nodes."""
    copying = WorkspaceCopying(
        snapshots,
        sessions.registry,
        cluster.copies,
        cluster.membership,
        record.recorder,
        partial(rules.keys.quota, defaults=settings.key_limits),
        settings.cluster_copy_bytes,
        settings.cluster_copy_seconds,
    )
    copying.start(ground.tasks)
    closers.push_async_callback(copying.close)
    taking = TakingOver(
        snapshots,
        sessions.moves.arrivals,
        cluster.moves,
        cluster.lost,
        cluster.membership,
        lambda: sessions.registry.with_sandbox < settings.max_active,
    )
    taking.start(ground.tasks)
    closers.push_async_callback(taking.close)


def anchor(
    settings: Settings, ground: GroundFloor, host: HostFloor, closers: AsyncExitStack
) -> None:
    """Begins to anchor heads of chains, if the settings say so. Raises: ConfigError."""
    if settings.anchor is None:
        return
    key = load_key(settings.anchor, settings.state_dir)
    anchoring = Anchoring(settings.anchor, ground.database, key, host.instance)
    anchoring.start(ground.tasks)
    closers.push_async_callback(anchoring.close)


async def export(
    settings: Settings,
    ground: GroundFloor,
    host: HostFloor,
    record: RecordFloor,
    closers: AsyncExitStack,
) -> None:
    """Sends the record where the settings say. Raises: ConfigError, StoreError."""
    # Without exports, nothing of this is imported.
    from orchestrator.operate.exports.export_gauges import ExportGauges
    from orchestrator.operate.exports.open_exports import made_exports

    exports = made_exports(settings.exports, ground.database, record.ledger, host.instance)
    closers.push_async_callback(exports.close)
    await exports.start(ground.tasks)
    ground.metrics.add(ExportGauges(exports))


def sign_ins(
    ground: GroundFloor,
    rules: RulesFloor,
    cluster: ClusterFloor,
    record: RecordFloor,
    closers: AsyncExitStack,
) -> UserEnding:
    """Puts sign-ins on record, and hears from other nodes who has left."""
    sign_in = rules.sign_in
    events = SignInRecord(record.recorder)
    closers.push_async_callback(events.close)
    sign_in.events = events
    if cluster.following is not None:
        cluster.following.add(SharedEnds(sign_in, ground.database).update)
    outbox = None if cluster.shared is None else cluster.outbox
    return UserEnding(sign_in, record.recorder, outbox)
