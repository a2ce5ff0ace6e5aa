"""Where an owner's content is on this machine."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.store.database import Database
from orchestrator.host.workspace.storage import Storage
from orchestrator.operate.hooks.hooks import Hooks
from orchestrator.record.audit.recorder import Recorder
from orchestrator.record.secrets.proxy_secrets import ProxySecrets
from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sandbox.volumes.volumes import Volumes
from orchestrator.state.registry import Registry
from orchestrator.work.memory.memory import Memory


@dataclass(frozen=True, slots=True)
class OwnersContent:
    """What keeps it, and what is needed to read it and to take it away.

    `evidence`, `archives` and `exports` are directories. `check_disk` raises
    CapacityExhaustedError if a directory's disk is nearly full; `scrub` has deleted rows removed
    from the database's files.
    """

    database: Database
    recorder: Recorder
    registry: Registry
    storage: Storage
    workspaces: Workspaces
    volumes: Volumes
    snapshots: NamedSnapshots
    memory: Memory
    secrets: ProxySecrets
    hooks: Hooks
    evidence: Path
    archives: Path
    exports: Path
    check_disk: Callable[[Path], None]
    scrub: Callable[[], None]
