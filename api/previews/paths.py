"""Addresses on the previews' origin: `/s/<session>/<port>/<path>?<query>`. Pure functions."""

import re
from typing import NamedTuple
from urllib.parse import unquote_plus

from api.views.ports import LINK

_TARGET = re.compile(
    r"/s/([A-Za-z0-9][A-Za-z0-9._-]{0,127})/([1-9][0-9]{0,4})(/[!-~]*|\?[!-~]*)?", re.ASCII
)


class PreviewPath(NamedTuple):
    """A port, and what is requested there: `rest` begins with `/`; empty: the slash is missing."""

    session_id: str
    port: int
    rest: str
    query: str

    @property
    def prefix(self) -> str:
        """The path of everything that the port serves, without a slash at the end."""
        return f"/s/{self.session_id}/{self.port}"

    @property
    def inside(self) -> str:
        """The path and query for the program in the sandbox."""
        return self.rest + (f"?{self.query}" if self.query else "")

    @property
    def tokens(self) -> list[str]:
        """The tokens of links in the query."""
        return [value for name, value in map(_parameter, self.query.split("&")) if name == LINK]

    def without_link(self) -> "PreviewPath":
        """The same without tokens; the rest of the query stays as it is."""
        kept = [each for each in self.query.split("&") if _parameter(each)[0] != LINK]
        return self._replace(query="&".join(kept))


def read_path(target: str) -> PreviewPath | None:
    """Reads a request's target. Nothing in it is decoded or resolved, `..` least of all."""
    found = _TARGET.fullmatch(target)
    if found is None or int(found[2]) > 65535:
        return None
    rest, _, query = (found[3] or "").partition("?")
    return PreviewPath(found[1], int(found[2]), rest, query)


def _parameter(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    return unquote_plus(name), unquote_plus(value)
