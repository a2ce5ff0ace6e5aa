"""API keys as the API shows them."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from orchestrator.ground.errors import ValidationError
from orchestrator.ground.limits import KeyUsage
from orchestrator.rules.access.key_entries import parse_key
from orchestrator.rules.access.keys import OldSecret, Principal
from paddock.contract.keys import KeyBody, KeyUse


def key(
    known: Principal, used: KeyUsage, caller: Principal, last: datetime | None
) -> dict[str, Any]:
    """The members of a `Key`; `last` is when it was used."""
    bounds = {name: _listed(value) for name, value in asdict(known.bounds).items()}
    return {
        "name": known.name,
        "role": str(known.role),
        "owner": known.owner,
        **asdict(known.limits),
        **bounds,
        "scopes": None if known.scopes is None else sorted(known.scopes),
        "last_used_at": last,
        "old_until": _still(known.old),
        "expires_at": known.expires_at,
        "expired": known.expires_at is not None and known.expires_at <= datetime.now(UTC),
        "current": known.name == caller.name,
        "used": KeyUse(sessions=used.sessions, cpus=used.cpus, memory_bytes=used.memory_bytes),
    }


def _still(old: OldSecret | None) -> datetime | None:
    """Until when the old secret is valid, if it is."""
    return old.until if old is not None and old.until > datetime.now(UTC) else None


def new_key(body: KeyBody) -> Principal:
    """The key that the body describes. Raises: ValidationError that names the field."""
    members = body.model_dump(exclude_none=True)
    if body.expires_at is not None:
        moment = datetime.fromisoformat(body.expires_at).replace(microsecond=0)
        if moment <= datetime.now(UTC):
            raise ValidationError("expires_at is in the past", field="expires_at")
        members["expires_at"] = moment
    try:
        return parse_key(members)
    except ValueError as error:
        field = str(error).partition(" ")[0].partition(".")[0]
        known = field if field in KeyBody.model_fields else None
        raise ValidationError(str(error), field=known) from None


def _listed(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
