"""Where an owner's content is, besides the database."""

from dataclasses import dataclass
from pathlib import Path

from orchestrator.sandbox.named_snapshots.named_snapshots import NamedSnapshots
from orchestrator.sandbox.sandboxes.workspaces import Workspaces
from orchestrator.sandbox.volumes.volumes import Volumes
from orchestrator.work.memory.memory import Memory


@dataclass(frozen=True, slots=True)
class OwnersFiles:
    """What keeps it; `evidence`, `archives` and `exports` are directories."""

    workspaces: Workspaces
    volumes: Volumes
    snapshots: NamedSnapshots
    memory: Memory
    evidence: Path
    archives: Path
    exports: Path
