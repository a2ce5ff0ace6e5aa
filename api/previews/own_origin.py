"""What only a port's own origin may do, at the port's own host name. Pure functions.

A browser that has followed a link keeps the link's token in a cookie of that host. It also sends
the cookie with what pages of other origins request there. So the cookie counts only for what the
port's own pages request, and for pages that are shown by themselves.
"""

from urllib.parse import urlsplit

from api.previews.paths import PreviewPath
from orchestrator.ground.serving.headers import Headers, values

# With the prefix, which needs https, no page of another host can set such a cookie.
COOKIE = "paddock-port"
_HOST_COOKIE = f"__Host-{COOKIE}"
COOKIES = frozenset({COOKIE, _HOST_COOKIE})
# More of them come from elsewhere.
_MOST_TOKENS = 8
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}


def is_same(origin: str, scheme: str, host: str) -> bool:
    """Whether it is the origin of the request's own `scheme` and `host`."""
    theirs, ours = _place(origin), _place(f"{scheme}://{host}")
    if theirs is None or ours is None:
        return False
    if theirs[0] in _LOOPBACK and ours[0] in _LOOPBACK:
        return theirs[1] == ours[1]
    # Behind a reverse proxy, only the browser knows the scheme.
    return urlsplit(origin).netloc.lower() == host.lower() or theirs == ours


def is_of_own_page(headers: Headers, scheme: str, host: str) -> bool:
    """Whether a page of this host name has sent it, by what its browser says."""
    if values(headers, "Sec-Fetch-Site") == ["same-origin"]:
        return True
    origins = values(headers, "Origin")
    return len(origins) == 1 and is_same(origins[0], scheme, host)


def may_use_cookie(method: str, headers: Headers, scheme: str, host: str) -> bool:
    """Whether the cookie counts for a request: no page of another origin may have made it.

    Such a page may only lead its reader here. Browsers say which it is (`Sec-Fetch-…`, `Origin`);
    what says nothing is no page's, or an old browser's, which sends the cookie by its own rules.
    """
    if is_of_own_page(headers, scheme, host):
        return True
    site = values(headers, "Sec-Fetch-Site")
    if site in ([], ["none"]):
        return not values(headers, "Origin")
    shown = (values(headers, "Sec-Fetch-Mode"), values(headers, "Sec-Fetch-Dest"))
    return method in ("GET", "HEAD") and shown == (["navigate"], ["document"])


def tokens(headers: Headers) -> list[str]:
    """The tokens of the request's cookies, of which at most one is ours."""
    pairs = [
        each.strip().partition("=")
        for line in values(headers, "Cookie")
        for each in line.split(";")
    ]
    return [value for name, _, value in pairs if name in COOKIES][:_MOST_TOKENS]


def cookie(token: str, seconds: int, *, secure: bool) -> str:
    """A `Set-Cookie` header with a link's token, for that time; `secure`: over https."""
    name = _HOST_COOKIE if secure else COOKIE
    ending = "; Secure" if secure else ""
    return f"{name}={token}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Lax{ending}"


def entered(path: PreviewPath) -> str:
    """Where a link leads, once its token is a cookie: a path of the same host in any case."""
    return f"/.{path.inside}" if path.rest[1:2] in ("/", "\\") else path.inside


def _place(origin: str) -> tuple[str, int] | None:
    """Its name and port; None if it is no origin of the web."""
    try:
        parts = urlsplit(origin)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    if parts.scheme not in _PORTS or not parts.hostname or port is None or parts.path:
        return None
    return parts.hostname, port
