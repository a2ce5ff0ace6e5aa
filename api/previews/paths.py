"""Addresses of ports. Pure functions.

There are two forms. `/s/<session>/<port>/<path>?<query>` is on an origin that all ports share. With
a link, `~<token>` comes before the path: what a page requests by a relative URL then has the token,
too. A cookie would not do, as browsers send none for what a page without an origin loads.

A port's own host name leads to its program alone, with the path as it is. Only the first request
by a link, `/~<token>/<path>?<query>`, has the token, which then becomes a cookie of that host.
"""

import re
from typing import NamedTuple

from orchestrator.sandbox.ports import links

_TARGET = re.compile(
    r"/s/([A-Za-z0-9][A-Za-z0-9._-]{0,127})/([1-9][0-9]{0,4})"
    rf"(?:/~({links.PATTERN})(?=[/?]|\Z))?(/[!-~]*|\?[!-~]*)?",
    re.ASCII,
)
_OWN_TARGET = re.compile(rf"(?:/~({links.PATTERN})(?=[/?]|\Z))?(/[!-~]*|\?[!-~]*)?", re.ASCII)


class PreviewPath(NamedTuple):
    """A port, and what is requested there: `rest` begins with `/`; empty: the slash is missing.

    `token` is the link's; None if there is none. `own_host`: by the port's own host name.
    """

    session_id: str
    port: int
    token: str | None
    rest: str
    query: str
    own_host: bool = False

    @property
    def prefix(self) -> str:
        """The path of everything that the port serves, without a slash at the end."""
        return "" if self.own_host else f"/s/{self.session_id}/{self.port}"

    @property
    def base(self) -> str:
        """The prefix for this client: with its link's token."""
        return (
            self.prefix if self.token is None or self.own_host else f"{self.prefix}/~{self.token}"
        )

    @property
    def inside(self) -> str:
        """The path and query for the program in the sandbox."""
        return self.rest + (f"?{self.query}" if self.query else "")


def read_path(target: str) -> PreviewPath | None:
    """Reads a request's target. Nothing in it is decoded or resolved, `..` least of all."""
    found = _TARGET.fullmatch(target)
    if found is None or int(found[2]) > 65535:
        return None
    rest, _, query = (found[4] or "").partition("?")
    return PreviewPath(found[1], int(found[2]), found[3], rest, query)


def read_own_path(session_id: str, port: int, target: str) -> PreviewPath | None:
    """Reads the target of a request to a port's own host name, in the same way.

    `token` is that of a link which is followed.
    """
    found = _OWN_TARGET.fullmatch(target) if target else None
    if found is None:
        return None
    rest, _, query = (found[2] or "").partition("?")
    return PreviewPath(session_id, port, found[1], rest or "/", query, own_host=True)
