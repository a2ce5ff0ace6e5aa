"""Secrets as the API shows them: never a value."""

from api.shape.objects import members
from orchestrator.state import secret as domain
from orchestrator.state.session import Session
from paddock.contract.secrets import Secret


def secret(shown: domain.Secret, session: Session | None = None) -> Secret:
    """A secret that the proxy has; `session` is its session, if it is a session's."""
    scope, key = shown.holder.scope, shown.holder.key
    keys = shown.keys if not key else (key,)
    return Secret.model_validate(
        members(
            Secret,
            shown,
            scope=scope,
            delivery="placeholder",
            session=session.id if session and scope == "session" else None,
            keys=None if keys is None else list(keys),
            levels=None if shown.levels is None else list(shown.levels),
            hosts=list(shown.hosts),
            headers=list(shown.headers),
            lost=shown.value is None,
        )
    )


def variables(session: Session) -> list[Secret]:
    """The secrets that the session's commands have as variables."""
    members_of_all = {
        "scope": "session",
        "delivery": "variable",
        "session": session.id,
        "keys": [session.owner],
        "levels": None,
        "hosts": [],
        "headers": [],
        "configured": False,
        "set_by": None,
        "created_at": session.created_at,
        "set_at": session.created_at,
        "lost": session.secrets.known and session.secrets.lost,
    }
    return [
        Secret.model_validate({**members_of_all, "name": name, "variable": name})
        for name in session.secrets.names
    ]
