"""Which session's port a request to the previews' address is for. Pure.

The node reads host and path again, and decides. What names no session goes to any node, which says
so in its own words.
"""

import re
from collections.abc import Sequence

from orchestrator.settings.e2b_names import plain_id
from paddock.contract.words import ID_PATTERN

_TARGET = re.compile(rf"/s/({ID_PATTERN})/", re.ASCII)
# As in `host_label` of the ports: the port, which life of the id, and the id in small letters.
_LABEL = re.compile(r"[1-9][0-9]{0,4}(?:n[1-9][0-9]{0,8})?-([a-z0-9][a-z0-9_-]{0,60})", re.ASCII)
_HOST = re.compile(r"([0-9A-Za-z._-]{1,255})(?::[0-9]{0,5})?", re.ASCII)


def session_of(
    hosts: Sequence[str], raw_path: str, domain: str | None, sandbox: str | None = None
) -> str | None:
    """The session's id; None: the request names none.

    `hosts` are the values of `Host`, `domain` is that below which ports have names, and `sandbox`
    the value of E2B's header.
    """
    named = _named(hosts, domain)
    if named is not None:
        return plain_id(named)
    found = _TARGET.match(raw_path)
    if found is not None:
        return found[1]
    return None if sandbox is None else plain_id(sandbox)


def _named(hosts: Sequence[str], domain: str | None) -> str | None:
    if domain is None or len(hosts) != 1:
        return None
    host = _HOST.fullmatch(hosts[0])
    name = "" if host is None else host[1].lower().removesuffix(".")
    if not name.endswith(f".{domain}"):
        return None
    label = _LABEL.fullmatch(name.removesuffix(f".{domain}"))
    return None if label is None else label[1]
