"""Volumes as the API shows them."""

from orchestrator.sandbox.volumes.volume_rows import User
from orchestrator.sandbox.volumes.volumes import Shown
from paddock.contract.volumes import Volume, VolumeUser


def volume(shown: Shown, node: str | None) -> Volume:
    """One volume; `node` is this node in its cluster."""
    found, users, usage = shown
    return Volume.model_validate(
        {
            "name": found.name,
            "key": found.owner,
            "node": node,
            "size_bytes": found.size,
            "used_bytes": None if usage is None else usage.used_bytes,
            "created_at": found.files.created_at,
            "sessions": [_user(user) for user in users],
        }
    )


def _user(user: User) -> VolumeUser:
    return VolumeUser(id=user.session_id, path=user.use.path, read_only=user.use.read_only)
