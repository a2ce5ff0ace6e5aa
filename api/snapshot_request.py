"""The request in a snapshot, read as the body of a new session is."""

import json
from collections.abc import Collection
from typing import Any

from api.http.body import parse_object, validated
from api.views import sessions as views
from orchestrator.errors import ValidationError
from orchestrator.sessions.requests import NewSession
from paddock.contract.session_requests import SessionBody


def request_in(levels: Collection[str], told: dict[str, Any]) -> NewSession:
    """The session that the snapshot asks for. Raises: ValidationError naming the member."""
    asked = parse_object(json.dumps(told).encode())
    body = validated(SessionBody, asked, {"levels": levels})
    if body.id is None or body.secrets or body.lease_id or body.consume:
        raise ValidationError(
            "session must have an id, and no secrets, lease_id or consume", field="session"
        )
    return views.new_session(body)
