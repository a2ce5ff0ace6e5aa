"""Addresses on the previews' origin: `/s/<session>/<port>/<path>?<query>`. Pure functions.

With a link, `~<token>` comes before the path: what a page requests by a relative URL then has the
token, too. A cookie would not do, as browsers send none for what a page without an origin loads.
"""

import re
from typing import NamedTuple

from orchestrator.sandbox.ports import links

_TARGET = re.compile(
    r"/s/([A-Za-z0-9][A-Za-z0-9._-]{0,127})/([1-9][0-9]{0,4})"
    rf"(?:/~({links.PATTERN})(?=[/?]|\Z))?(/[!-~]*|\?[!-~]*)?",
    re.ASCII,
)


class PreviewPath(NamedTuple):
    """A port, and what is requested there: `rest` begins with `/`; empty: the slash is missing.

    `token` is the link's; None if there is none.
    """

    session_id: str
    port: int
    token: str | None
    rest: str
    query: str

    @property
    def prefix(self) -> str:
        """The path of everything that the port serves, without a slash at the end."""
        return f"/s/{self.session_id}/{self.port}"

    @property
    def base(self) -> str:
        """The prefix for this client: with its link's token."""
        return self.prefix if self.token is None else f"{self.prefix}/~{self.token}"

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
