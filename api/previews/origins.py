"""Which requests come from a program's own page, so that its `Origin` agrees with its `Host`. Pure.

Programs such as Jupyter and Streamlit refuse requests whose `Origin` is not their own `Host`. They
see `Host: localhost:PORT`, so a request of their own page gets that origin. Any other origin stays
as it is, and the program can refuse it.
"""

from urllib.parse import urlsplit

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
_PORTS = {"http": 80, "https": 443}


def is_own(origin: str, scheme: str, host: str, *, linked: bool) -> bool:
    """Whether a page of this port may have sent it; `scheme` and `host` are the request's.

    All pages of ports have the origin "null" (their policy's `sandbox`), so it says nothing. With a
    link, `linked`, the address is the proof: no page knows another port's.
    """
    if origin == "null":
        return linked
    theirs, ours = _place(origin), _place(f"{scheme}://{host}")
    if theirs is None or ours is None:
        return False
    if theirs[0] in _LOOPBACK and ours[0] in _LOOPBACK:
        return theirs[1] == ours[1]
    # Behind a reverse proxy, only the browser knows the scheme.
    return urlsplit(origin).netloc.lower() == host.lower() or theirs == ours


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
