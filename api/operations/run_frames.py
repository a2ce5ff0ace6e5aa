"""The text frames of a WebSocket for runs. Pure."""

from collections.abc import Collection

from api.shape.answers import Event
from api.shape.objects import parse_object, validated
from orchestrator.ground.errors import ValidationError
from paddock.contract.run_sockets import RunFrame, RunSocketFrame


def wanted_run(text: str, session_id: str, levels: Collection[str]) -> RunFrame:
    """What a client's frame asks for, in a session; `levels` are those that it may name.

    Raises: ValidationError.
    """
    data = parse_object(text.encode("utf-8", "surrogatepass"))
    frame = validated(RunFrame, data, {"levels": levels})
    if frame.session_id != session_id:
        raise ValidationError("session_id must be the one of the address", field="session_id")
    return frame


def told(event: Event) -> RunSocketFrame:
    """An event as the server's frame."""
    return RunSocketFrame.model_validate({"event": event.name, "id": event.id, "data": event.data})
