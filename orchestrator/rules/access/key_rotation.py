"""Rotation of a key's secret: for a while, the old one is valid beside the new one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from orchestrator.ground.errors import ConflictError
from orchestrator.rules.access.keys import OldSecret, Principal

DEFAULT_OVERLAP = timedelta(hours=24)
MOST_OVERLAP = timedelta(days=90)


def rotated(key: Principal, sha256: str, overlap: timedelta) -> Principal:
    """The key after a rotation, whose secret so far had the digest `sha256`.

    Without an overlap, all earlier secrets end at once. Otherwise there are two at most. Raises:
    ConflictError if an earlier secret is still valid.
    """
    moment = datetime.now(UTC).replace(microsecond=0)
    if not overlap:
        return replace(key, old=None)
    if key.old is not None and key.old.until > moment:
        raise ConflictError(
            f"the secret of {key.name} was rotated, and the old one is valid until "
            f"{key.old.until:%Y-%m-%dT%H:%M:%SZ}: rotate it after that, or without an overlap, "
            "which ends all earlier secrets at once"
        )
    return replace(key, old=OldSecret(sha256, moment + overlap))
