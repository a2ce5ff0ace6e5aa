"""Sessions of this API as sandboxes of E2B's."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from aiohttp import web

from orchestrator.ground.events import time_text
from orchestrator.settings.e2b_names import CLIENT, TEMPLATE_LABEL
from orchestrator.settings.preview_address import PreviewOrigin
from paddock.contract.sessions import Deadlines, Session
from paddock.contract.words import Activity, IdleAction, Status

# It switches features of the SDKs on; everything that they use at this one is served.
VERSION = "0.6.8"
DEFAULT_TEMPLATE = "base"
# No name below it exists, by RFC 6761.
_NO_DOMAIN = "ports-have-no-names.invalid"
_MIB = 1024 * 1024
# Of a session that no time-out ends.
_NO_END = timedelta(days=365)


def is_paused(session: Session) -> bool:
    """Whether nothing runs in it until it is resumed or used."""
    return session.status is Status.PAUSED or session.activity is Activity.SUSPENDED


def state(session: Session) -> str:
    """Its state."""
    return "paused" if is_paused(session) else "running"


def template_of(session: Session) -> str:
    """What it was made from."""
    return session.labels.get(TEMPLATE_LABEL, DEFAULT_TEMPLATE)


def moment(at: object) -> str:
    """A time of a model of the contract, which the server fills with the text of a time."""
    return time_text(at) if isinstance(at, datetime) else str(at)


def created(session: Session, token: str, previews: PreviewOrigin) -> dict[str, Any]:
    """What a client needs in order to use a sandbox; `token` is for what is inside."""
    return {
        **_identity(session),
        "envdAccessToken": token,
        # The interpreter's clients send only this one.
        "trafficAccessToken": token,
        "domain": domain(previews),
    }


def listed(session: Session) -> dict[str, Any]:
    """A sandbox in a list."""
    return {
        **_identity(session),
        "startedAt": moment(session.created_at),
        "endAt": _end(session.deadlines),
        "cpuCount": max(1, math.ceil(session.limits.cpus)),
        "memoryMB": session.limits.memory_bytes // _MIB,
        "diskSizeMB": session.limits.workspace_bytes // _MIB,
        "state": state(session),
        "metadata": session.metadata,
        "volumeMounts": [{"name": each.name, "path": each.path} for each in session.volumes],
    }


def detail(session: Session, previews: PreviewOrigin, *, reaches: bool) -> dict[str, Any]:
    """A sandbox with everything that is known of it; `reaches`: its level has a way out."""
    suspends = session.idle_action is IdleAction.SUSPEND
    return {
        **listed(session),
        "domain": domain(previews),
        "allowInternetAccess": reaches,
        "lifecycle": {"autoResume": suspends, "onTimeout": "pause" if suspends else "kill"},
    }


def domain(previews: PreviewOrigin) -> str:
    """What follows `PORT-ID.` in the host names of ports, which has its own port.

    There is always one: without it, the SDKs would send a sandbox's credential to E2B.
    """
    named = previews.named("x")
    return _NO_DOMAIN if named is None else named.partition("://x.")[2]


def answer(body: Any, status: int = 200, *, more: str | None = None) -> web.Response:
    """The response with that JSON; `more` is the token of a list's next page."""
    headers = {} if more is None else {"X-Next-Token": more}
    return web.json_response(body, status=status, headers=headers)


def nothing() -> web.Response:
    """The response to what succeeded and has nothing to say."""
    return web.Response(status=204)


def _identity(session: Session) -> dict[str, Any]:
    return {
        "templateID": template_of(session),
        "sandboxID": session.id,
        "clientID": CLIENT,
        "envdVersion": VERSION,
    }


def _end(deadlines: Deadlines) -> str:
    """When it ends, or is suspended, whichever comes first."""
    known = (deadlines.idle_at, deadlines.wall_at, deadlines.budget_at)
    found = [moment(each) for each in known if each is not None]
    return min(found, default=time_text(datetime.now(UTC) + _NO_END))
