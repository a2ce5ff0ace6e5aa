"""Which headers of requests and answers are passed on or added. Pure functions.

The program in the sandbox may be hostile: it learns no credential, and its answers get no power
over an origin that it shares with other ports, and none beyond an origin of its own.
"""

import re
from collections.abc import Mapping

from api.previews.base_paths import outside
from api.previews.own_origin import COOKIES, is_of_own_page, is_same
from api.previews.paths import PreviewPath
from orchestrator.ground.serving.headers import HOP_BY_HOP, Headers, declared, sendable, values

# A page has an origin of its own, which equals no other, not even that of its server.
SANDBOX = "sandbox allow-scripts allow-forms allow-popups allow-modals allow-downloads"
ADDED: Mapping[str, str] = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    # A page's own images and scripts come from another origin than the page.
    "Cross-Origin-Resource-Policy": "cross-origin",
}
# At the port's own host name, where a page has the origin of its address: no other origin may show
# it, read it or use it as its own.
_ADDED_AT_HOST: Mapping[str, str] = {
    "Cross-Origin-Resource-Policy": "same-origin",
    "Origin-Agent-Cluster": "?1",
}
_OWN_FRAMES = "frame-ancestors 'self'"
# Scripts of a page, whose origin equals no other, may read what the link leads to.
_READABLE: Mapping[str, str] = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Expose-Headers": "*",
}
_PREFLIGHT = "Access-Control-Request-"
_NOT_INSIDE = HOP_BY_HOP | {
    *("authorization", "cookie", "expect", "forwarded", "host", "referer", "via", "x-real-ip"),
}
# What Jupyter's pages send, which have no cookies: the program's own token. Keys of the control
# plane are "Bearer", and reverse proxies ask for "Basic".
_OWN_TOKEN = re.compile(r"token [!-~]+", re.ASCII | re.IGNORECASE)
# What browsers send with requests from another origin; every page here has another one.
_OF_OWN_PAGE = frozenset({"origin", "sec-fetch-site"})
# Left out of answers: what concerns the whole origin, or the browser's credentials.
_NOT_OUTSIDE = HOP_BY_HOP | {
    *("alt-svc", "authentication-info", "clear-site-data", "location", "nel"),
    *("public-key-pins", "report-to", "reporting-endpoints", "service-worker-allowed"),
    *("set-cookie", "strict-transport-security", "www-authenticate", "origin-agent-cluster"),
    *("cross-origin-opener-policy", "cross-origin-embedder-policy"),
    *(name.lower() for name in ADDED),
}
# What concerns the whole origin, but nothing else, is the program's at its own host name.
_NOT_OUTSIDE_AT_HOST = _NOT_OUTSIDE - {
    *("cross-origin-opener-policy", "cross-origin-embedder-policy", "service-worker-allowed"),
    *("x-content-type-options", "referrer-policy"),
}
_COOKIE_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Attributes of cookies that have an effect only within their path.
_COOKIE_ATTRIBUTES = frozenset({"expires", "max-age", "httponly", "secure"})


def for_program(headers: Headers, path: PreviewPath, scheme: str, host: str) -> Headers:
    """A request's headers for the program, which is addressed as on its own machine."""
    left_out = _NOT_INSIDE | declared(headers)
    own = _is_own(headers, path, scheme, host)
    if own:
        left_out |= {"origin"} if path.own_host else _OF_OWN_PAGE
    cookies = [each for line in values(headers, "Cookie") for each in _cookies(line)]
    return [
        *(
            (name, value)
            for name, value in headers
            if name.lower() not in left_out
            and not name.lower().startswith(("x-forwarded-", "sec-websocket-"))
            and sendable(value)
        ),
        ("Host", f"localhost:{path.port}"),
        *((("Origin", f"http://localhost:{path.port}"),) if own else ()),
        *(_referer(headers, path, scheme, host) if path.own_host else _told(path, scheme, host)),
        *([("Cookie", "; ".join(cookies))] if cookies else []),
        *_own_token(headers, path),
    ]


def _told(path: PreviewPath, scheme: str, host: str) -> Headers:
    """What tells the program its address; with a link, that has the token, which it is not told."""
    prefix = [("X-Forwarded-Prefix", path.prefix)] if path.token is None else []
    return [("X-Forwarded-Host", host), ("X-Forwarded-Proto", scheme), *prefix]


def _referer(headers: Headers, path: PreviewPath, scheme: str, host: str) -> Headers:
    """The page of this host from which a request comes, as the program knows its address."""
    found = values(headers, "Referer")
    parts = found[0].split("/", 3) if len(found) == 1 else []
    if len(parts) < 4 or not sendable(parts[3]) or not is_same("/".join(parts[:3]), scheme, host):
        return []
    return [("Referer", f"http://localhost:{path.port}/{parts[3]}")]


def _is_own(headers: Headers, path: PreviewPath, scheme: str, host: str) -> bool:
    """Whether its `Origin` is the one of a page of this port."""
    origins = values(headers, "Origin")
    if path.own_host:
        return bool(origins) and is_of_own_page(headers, scheme, host)
    return len(origins) == 1 and is_own(origins[0], scheme, host, linked=path.token is not None)


def is_own(origin: str, scheme: str, host: str, *, linked: bool) -> bool:
    """Whether a page of this port may have sent it; `scheme` and `host` are the request's.

    Programs such as Jupyter and Streamlit refuse requests whose `Origin` is not their own `Host`.
    They see `Host: localhost:PORT`, so a request of their own page gets that origin. Any other
    origin stays as it is, and the program can refuse it.

    All pages of ports have the origin "null" (their policy's `sandbox`), so it says nothing. With a
    link, `linked`, the address is the proof: no page knows another port's.
    """
    return linked if origin == "null" else is_same(origin, scheme, host)


def _own_token(headers: Headers, path: PreviewPath) -> Headers:
    """The token with which a page authorizes itself; without a link, it is the caller's own."""
    sent = values(headers, "Authorization")
    is_own_token = path.token is not None and len(sent) == 1 and _OWN_TOKEN.fullmatch(sent[0])
    return [("Authorization", sent[0])] if is_own_token else []


def for_client(headers: Headers, path: PreviewPath, base: str = "") -> Headers:
    """An answer's headers for the client; `base` is the path below which the program serves."""
    left_out = declared(headers) | (_NOT_OUTSIDE_AT_HOST if path.own_host else _NOT_OUTSIDE)
    cookies = (_limited(text, path) for text in values(headers, "Set-Cookie"))
    passed = [
        *(
            (name, value)
            for name, value in headers
            if name.lower() not in left_out and not name.lower().startswith("access-control-")
        ),
        *(("Location", outside(text, path, base)) for text in values(headers, "Location")),
        *(("Set-Cookie", cookie) for cookie in cookies if cookie is not None),
    ]
    return [
        *((name, value) for name, value in passed if sendable(value)),
        *added(path),
    ]


def added(path: PreviewPath) -> Headers:
    """What all answers have that a program's page may be."""
    if path.own_host:
        return [*_ADDED_AT_HOST.items(), ("Content-Security-Policy", _OWN_FRAMES)]
    return [
        *ADDED.items(),
        *(_READABLE.items() if path.token is not None else ()),
        ("Content-Security-Policy", SANDBOX),
    ]


def is_preflight(method: str, headers: Headers) -> bool:
    """Whether a browser asks what a script of a page may request."""
    return method == "OPTIONS" and bool(values(headers, f"{_PREFLIGHT}Method"))


def for_preflight(headers: Headers) -> Headers:
    """What the scripts of a page that was opened with a link may request: anything."""
    methods, names = (values(headers, _PREFLIGHT + each) for each in ("Method", "Headers"))
    return [
        *_READABLE.items(),
        ("Access-Control-Allow-Methods", ", ".join(methods)),
        ("Access-Control-Allow-Headers", ", ".join(names)),
        ("Access-Control-Max-Age", "600"),
    ]


def _cookies(line: str) -> list[str]:
    """The program's own cookies."""
    return [
        each
        for each in map(str.strip, line.split(";"))
        if each and sendable(each) and each.partition("=")[0].rstrip() not in COOKIES
    ]


def _limited(text: str, path: PreviewPath) -> str | None:
    """A cookie that only requests to this port get; None: it is not passed."""
    pair, *attributes = (each.strip() for each in text.split(";"))
    name = pair.partition("=")[0].strip()
    if "=" not in pair or not _COOKIE_NAME.fullmatch(name):
        return None
    if name in COOKIES:
        return None
    allowed = _COOKIE_ATTRIBUTES | ({"path"} if path.own_host else set())
    kept = [each for each in attributes if each.partition("=")[0].strip().lower() in allowed]
    ending = ["SameSite=Lax"] if path.own_host else [f"Path={path.prefix}/", "SameSite=Lax"]
    return "; ".join((pair, *kept, *ending))
