"""Which headers of requests and answers are passed on. Pure functions.

Credentials, `Host` and `Origin` go through: the node decides by them. What says who the client is
comes from the gateway alone.
"""

from orchestrator.ground.errors import MisdirectedRequestError, ValidationError
from orchestrator.ground.serving.headers import HOP_BY_HOP, Headers, declared, sendable

# The length of a body is passed with the body. `Expect` has been answered here.
_OURS = frozenset({"content-length", "expect", "forwarded", "x-real-ip"})
_LEFT_OUT = HOP_BY_HOP | _OURS
_FORWARDED = "x-forwarded-"
# They can't be declared to be for this hop only, since the node decides by them.
_ASKING = frozenset(
    {
        *("host", "authorization", "origin", "x-forwarded-for", "x-forwarded-proto"),
        *("x-api-key", "x-access-token"),
    }
)
_ALWAYS = frozenset({"host", "authorization", "origin", "cookie", "content-type"})


def for_node(headers: Headers, client: str, scheme: str) -> list[tuple[str, str]]:
    """A request's headers for the node. `client` is the address of who has sent it here.

    Raises: MisdirectedRequestError without exactly one `Host`; ValidationError for a value that is
    no text.
    """
    left_out = _LEFT_OUT | (declared(headers) - _ALWAYS)
    passed, hosts = [], 0
    for name, value in headers:
        lower = name.lower()
        hosts += lower == "host"
        if lower in left_out or lower.startswith(_FORWARDED):
            continue
        if not sendable(value):
            raise ValidationError("a header must be text in UTF-8", field=name)
        passed.append((name, value))
    if hosts != 1:
        raise MisdirectedRequestError("a request must have exactly one Host header")
    passed += [("X-Forwarded-For", client), ("X-Forwarded-Proto", scheme)]
    return passed


def for_asking(headers: Headers, client: str, scheme: str) -> list[tuple[str, str]]:
    """Of a request's headers, those with which nodes are asked something else for it.

    Raises: as `for_node`.
    """
    return [pair for pair in for_node(headers, client, scheme) if pair[0].lower() in _ASKING]


def for_client(headers: Headers) -> list[tuple[str, str]]:
    """An answer's headers for the client."""
    left_out = HOP_BY_HOP | declared(headers)
    return [
        (name, value) for name, value in headers if name.lower() not in left_out and sendable(value)
    ]
