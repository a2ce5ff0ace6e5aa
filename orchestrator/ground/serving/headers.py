"""Headers as lists of pairs, and which of them end at each hop. Pure functions."""

from collections.abc import Sequence

# In order; a name may occur several times.
Headers = Sequence[tuple[str, str]]

# They concern one connection (RFC 9110, 7.6.1), and are never passed on.
HOP_BY_HOP = frozenset(
    {
        *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization"),
        *("proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings"),
    }
)


def values(headers: Headers, name: str) -> list[str]:
    """The values of a header, in order."""
    lower = name.lower()
    return [value for each, value in headers if each.lower() == lower]


def declared(headers: Headers) -> frozenset[str]:
    """The headers that a message declares to be for the next hop only, in lower case."""
    lines = values(headers, "Connection")
    return frozenset(name.strip().lower() for line in lines for name in line.split(","))


def sendable(value: str) -> bool:
    """Whether it is text: what is not UTF-8 can't be sent on."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
