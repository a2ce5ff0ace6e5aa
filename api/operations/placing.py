"""Whether a new session may be put on this node: by labels, or near another one."""

from api.shape.context import Context
from orchestrator.ground.errors import ValidationError
from orchestrator.sessions.sessions import Sessions
from orchestrator.settings.settings import Settings
from paddock.contract.cluster import PlacementBody
from paddock.contract.session_requests import SessionBody


def check_placement(
    context: Context, sessions: Sessions, settings: Settings, body: SessionBody
) -> None:
    """Refuses what this node can't give, instead of leaving it out.

    A gateway has chosen the node by the same wishes, so that here they hold or are refused. Raises:
    ValidationError.
    """
    check_near(context, sessions, settings, body.placement)


def check_near(
    context: Context, sessions: Sessions, settings: Settings, placement: PlacementBody
) -> None:
    """Refuses labels that this node has not, and sessions that are elsewhere.

    Raises: ValidationError.
    """
    for name, wanted in sorted(placement.labels.items()):
        if settings.node_labels.get(name) != wanted:
            text = f"placement.labels.{name}: there is no node with this label"
            raise ValidationError(text, field=f"placement.labels.{name}")
    near = placement.near
    if near is not None and sessions.finder.existing(context.principal, near) is None:
        text = "placement.near: there is no live session with this id"
        raise ValidationError(text, field="placement.near")
