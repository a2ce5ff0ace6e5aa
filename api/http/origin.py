"""Whether a page of this instance sends the request, and no other site's page. Pure functions.

A browser names the page's origin in `Origin`, and lets any page open a WebSocket. Programs that are
no browsers send no `Origin`. A page on another port of the same host may come from a sandbox.
"""

import re
from collections.abc import Sequence

from orchestrator.ground.errors import PermissionDeniedError

RULE = "foreign-origin"
_ORIGIN = re.compile(r"(https?)://([^/?#@\s]+)")
_USUAL_PORTS = {"http": ":80", "https": ":443"}


def check_origin(origins: Sequence[str], host: str) -> None:
    """Checks the values of `Origin`, with the request's `Host`, which is known to be ours.

    Raises: PermissionDeniedError.
    """
    if not origins or (len(origins) == 1 and is_own(origins[0], host)):
        return
    raise PermissionDeniedError("a page of another origin can't do this", rule=RULE)


def is_own(origin: str, host: str) -> bool:
    """Whether a page of that origin was served by the host of the request."""
    found = _ORIGIN.fullmatch(origin)
    if found is None:
        return False
    usual = _USUAL_PORTS[found[1]]
    return found[2].lower().removesuffix(usual) == host.strip().lower().removesuffix(usual)
