"""Opens what erases and exports what owners have."""

from contextlib import AsyncExitStack

from orchestrator.cluster.open import ClusterFloor
from orchestrator.ground.open import GroundFloor
from orchestrator.host.open import HostFloor
from orchestrator.operate.hooks.hooks import Hooks
from orchestrator.operate.privacy.owner_requests import OwnerRequests, SharedOwners
from orchestrator.operate.privacy.owners_content import OwnersContent
from orchestrator.operate.privacy.owners_copies import OwnersCopies
from orchestrator.operate.privacy.owners_in_cluster import OwnersInCluster
from orchestrator.record.open import RecordFloor
from orchestrator.sandbox.open import SandboxFloor
from orchestrator.sessions.sessions import Sessions
from orchestrator.settings.settings import Settings
from orchestrator.work.open import WorkFloor


def open_owners(
    settings: Settings,
    ground: GroundFloor,
    host: HostFloor,
    cluster: ClusterFloor,
    record: RecordFloor,
    sandbox: SandboxFloor,
    work: WorkFloor,
    sessions: Sessions,
    hooks: Hooks,
    closers: AsyncExitStack,
) -> OwnerRequests:
    """Erases and exports what owners have; erasures of an earlier run go on."""
    content = OwnersContent(
        ground.database,
        record.recorder,
        sessions.registry,
        host.node.storage,
        sandbox.workspaces,
        sandbox.volumes,
        sandbox.named_snapshots,
        work.memory,
        record.secrets,
        hooks,
        settings.state_dir / "evidence",
        settings.archive_path,
        settings.state_dir / "exports",
        record.room.check_disk,
        ground.scrub,
    )
    shared = None
    if cluster.shared is not None:
        nodes = OwnersInCluster(cluster.shared, settings.node or "", cluster.outbox)
        shared = SharedOwners(nodes, OwnersCopies(cluster.shared))
    requests = OwnerRequests(content, shared)
    if cluster.following is not None:
        cluster.following.add(requests.update)
    requests.start(ground.tasks)
    closers.push_async_callback(requests.close)
    return requests
