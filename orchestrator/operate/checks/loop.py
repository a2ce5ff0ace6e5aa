"""Whether one thing keeps all others of a running control plane waiting."""

import json
from http.client import HTTPConnection, HTTPException
from urllib.parse import urlsplit

from orchestrator.ground.check import Check, CheckStatus, ok, warning
from orchestrator.ground.loop_lag import LongestPass
from orchestrator.settings.instance_url import URL_FILE, find_url
from orchestrator.settings.settings import Settings

LOOP = "event loop"
# On a busy machine, a pass takes some tenths of a second without anything being wrong.
_LONG_SECONDS = 1.0
_ANSWER_SECONDS = 5.0
_NOBODY = "no control plane answers here"
_MOST_BYTES = 1024 * 1024


def loop_check(worst: LongestPass | None) -> Check:
    """The check of the longest pass of the last hour."""
    if worst is None:
        return ok(LOOP, "nothing was measured yet")
    found = (
        f"in the last hour, others waited for at most {worst.seconds * 1000:.0f} ms: "
        f"{worst.operation}, {worst.time:%Y-%m-%dT%H:%M:%SZ}"
    )
    if worst.seconds < _LONG_SECONDS:
        return ok(LOOP, found)
    return warning(LOOP, found, "give the host more CPU, or report the operation as a defect")


def check_loop(settings: Settings) -> Check:
    """The check as the running control plane reports it. Blocks for some seconds at most."""
    if not (settings.state_dir / URL_FILE).exists():
        return ok(LOOP, _NOBODY)
    url = urlsplit(find_url(settings))
    connection = HTTPConnection(url.hostname or "127.0.0.1", url.port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/readyz")
        check = json.loads(connection.getresponse().read(_MOST_BYTES))["checks"][LOOP]
        return Check(LOOP, CheckStatus(check["status"]), str(check["detail"]), check["remedy"])
    except (OSError, HTTPException, ValueError, KeyError, TypeError):
        return ok(LOOP, _NOBODY)
    finally:
        connection.close()
