"""Opens the floor of sessions, which serves requests to end them, and takes over earlier ones."""

from contextlib import AsyncExitStack
from dataclasses import dataclass

from orchestrator.cluster.open import ClusterFloor
from orchestrator.ground.open import GroundFloor
from orchestrator.host.open import HostFloor
from orchestrator.record.audit.followers import Followers
from orchestrator.record.open import RecordFloor
from orchestrator.rules.open import RulesFloor
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sandbox.sandboxes.stopper import Stopper
from orchestrator.sessions.in_cluster.capacity import NodeCapacity
from orchestrator.sessions.in_cluster.fencing import Fencing
from orchestrator.sessions.in_cluster.name_comparison import NameComparison
from orchestrator.sessions.in_cluster.place_comparison import PlaceComparison
from orchestrator.sessions.kept_workspaces import KeptWorkspaces
from orchestrator.sessions.recovery import Recovered, Recovery
from orchestrator.sessions.refinement import Refinement
from orchestrator.sessions.sessions import Sessions
from orchestrator.sessions.shares import Streams
from orchestrator.sessions.tickets import Tickets
from orchestrator.settings.settings import Settings
from orchestrator.state.session import Session
from orchestrator.work.open import WorkFloor
from orchestrator.work.proposals.proposals import Proposals


@dataclass(frozen=True, slots=True)
class SessionsFloor:
    """`proposals` are work, but need sessions that have no sandbox meanwhile."""

    sessions: Sessions
    proposals: Proposals
    refinement: Refinement
    tickets: Tickets
    streams: Streams
    followers: Followers
    node_capacity: NodeCapacity


async def open_sessions(
    settings: Settings,
    ground: GroundFloor,
    host: HostFloor,
    rules: RulesFloor,
    cluster: ClusterFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    work: WorkFloor,
    closers: AsyncExitStack,
) -> SessionsFloor:
    """Opens sessions, of which there are none before `recover_sessions`."""
    # They close after the sessions and before the floor of work, to which they still report.
    closers.push_async_callback(sandbox.way_out.shut_down)
    closers.push_async_callback(sandbox.ports.shut_down)
    closers.push_async_callback(sandbox.sandboxes.close)
    # Before the sandboxes are out of reach: cells would look as if their programs had ended.
    closers.push_async_callback(work.cells.close)
    sessions = Sessions(settings, ground, host, rules, cluster, record, sandbox, work)
    closers.push_async_callback(sessions.shut_down)
    record.end_requests.serve(sessions.serve)
    ground.clock.on_change(
        lambda forward: sessions.deadlines.clock_changed(sessions.registry.live, forward)
    )
    return SessionsFloor(
        sessions,
        Proposals(
            ground.database,
            record.recorder,
            host.node.storage,
            sessions.suspensions.without_sandbox,
        ),
        Refinement(ground.database, sandbox.workspaces, rules.glass),
        Tickets(rules.keys),
        Streams(settings.session_max_streams, settings.key_max_streams),
        Followers(record.ledger, ground.database, sessions.registry.owner),
        NodeCapacity(
            *(settings, cluster.membership, host.node.load(), await host.node.facts()),
            *(rules.levels, sandbox.listed_images, sessions.registry, sessions.shares.slots),
            sandbox.pool,
        ),
    )


async def join_cluster(
    settings: Settings,
    ground: GroundFloor,
    cluster: ClusterFloor,
    floor: SessionsFloor,
    host: HostFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    work: WorkFloor,
    closers: AsyncExitStack,
) -> None:
    """Makes this node, which has taken over its sessions, a part of its cluster, if it has one.

    Raises: ConfigError.
    """
    sessions = floor.sessions
    comparison = PlaceComparison(
        settings.cluster or "",
        cluster.places,
        sessions.usage,
        ground.database,
        sessions.registry,
        sessions.places,
        NameComparison(cluster.names, ground.database),
        sessions.ends.moved,
        sessions.moves.settle,
    )
    await cluster.membership.join(floor.node_capacity, comparison.run)
    comparison.serve()
    if settings.cluster is not None:

        async def resumed(session: Session) -> None:
            await work.executions.reconcile(session)
            await work.cells.end_left(session)

        fencing = Fencing(
            cluster.membership,
            sessions.registry,
            host.engine,
            Stopper(host.node),
            record.recorder,
            record.stops,
            sandbox.sandboxes.vouching,
            comparison.run,
            resumed,
            settings.hello_timeout,
        )
        await fencing.start(ground.tasks)
        closers.push_async_callback(fencing.close)
        sessions.shipping.start(ground.tasks)
        closers.push_async_callback(sessions.shipping.close)


async def recover_sessions(
    settings: Settings,
    ground: GroundFloor,
    host: HostFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    work: WorkFloor,
    floor: SessionsFloor,
    closers: AsyncExitStack,
) -> Recovered:
    """Takes over the sessions of an earlier run, before anything new begins.

    Raises: EngineUnavailableError, AuditUnavailableError, StoreError.
    """
    recovery = Recovery(
        settings, ground, host, record, sandbox, work, floor.sessions, floor.proposals
    )
    recovered = await recovery.run()
    kept = KeptWorkspaces(
        *(sandbox.workspaces, sandbox.named_snapshots),
        *(settings.workspace_retention, settings.snapshot_retention),
        ground.tasks,
    )
    ground.clock.on_change(kept.clock_changed)
    kept.start()
    closers.push_async_callback(kept.close)
    await work.terminals.recover(floor.sessions.registry.all)
    closers.push_async_callback(work.terminals.shut_down)
    return recovered
