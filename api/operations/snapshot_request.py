"""The request in a snapshot, read as the body of a new session is."""

from collections.abc import Collection
from typing import Any

from api.shape.objects import validated
from api.views import sessions as views
from orchestrator.ground import strict_json
from orchestrator.ground.errors import ValidationError
from orchestrator.ground.strict_json import JsonError
from orchestrator.state.requests import NewSession
from paddock.contract.session_requests import SessionBody


def request_in(levels: Collection[str], told: dict[str, Any]) -> NewSession:
    """The session that the snapshot asks for. Raises: ValidationError naming the member."""
    try:
        strict_json.check(told, "session")
    except JsonError as error:
        raise ValidationError(str(error), field=error.field) from None
    body = validated(SessionBody, told, {"levels": levels})
    if body.id is None or body.secrets or body.lease_id or body.consume:
        raise ValidationError(
            "session must have an id, and no secrets, lease_id or consume", field="session"
        )
    return views.new_session(body)
