"""Named snapshots as the API shows them."""

import json
from datetime import datetime, timedelta

from api.views.sessions import created
from orchestrator.ground.events import time_text
from orchestrator.programs.spawning.forks import Forked
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.named_snapshots.named_snapshots import ShownSnapshot
from orchestrator.settings.settings import Settings
from paddock.contract.snapshots import Forks, NamedSnapshot


def snapshot(shown: ShownSnapshot, settings: Settings) -> NamedSnapshot:
    """One snapshot of this node."""
    retention = settings.snapshot_retention
    found, copied = shown
    taken = datetime.fromisoformat(found.created_at)
    expires = None if retention is None else time_text(taken + timedelta(seconds=retention))
    return NamedSnapshot.model_validate(
        {
            "id": found.id,
            "name": found.name,
            "key": found.owner,
            "node": settings.node,
            "session_id": found.session_id,
            "status": "ready" if found.ready else "taking",
            "created_at": found.created_at,
            "expires_at": expires,
            "size_bytes": found.size,
            "used_bytes": found.used_bytes,
            "stored_bytes": found.bytes,
            "layer_bytes": found.layer_bytes,
            "copied_bytes": copied,
            "method": found.method,
            "frozen_ms": found.frozen_us / 1000 if found.ready else None,
            "sha256": found.sha256,
            "metadata": json.loads(found.metadata),
        }
    )


def forks(forked: Forked, principal: Principal) -> Forks:
    """The new sessions, as their creator sees them."""
    snapshot = forked.snapshot
    return Forks.model_validate(
        {
            "sha256": snapshot.sha256,
            "method": snapshot.method,
            "frozen_ms": snapshot.frozen_us / 1000,
            "sessions": [created(registered, principal) for registered in forked.made],
        }
    )
