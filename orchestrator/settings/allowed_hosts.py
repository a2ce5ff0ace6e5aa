"""The host names under which the API answers, so that no web page can reach it. Pure functions.

A page of any site can make its own name resolve to this machine (DNS rebinding). Its requests then
carry that name in `Host`. Requests with an unknown name are refused, with or without a credential.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence

from orchestrator.ground.errors import MisdirectedRequestError

_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
# `name:port`, `address:port` or `[address]:port`; the port is optional (RFC 9110, 7.2).
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,255})(?::[0-9]{0,5})?")
_MOST_SHOWN = 64


class AllowedHosts:
    """The names of the address that the API listens on, and those on the operator's list.

    If the API listens on all interfaces, any address is allowed: no name is involved, so nothing
    can be rebound.
    """

    def __init__(self, listen_host: str, names: Iterable[str] = ()) -> None:
        """`listen_host` and `names` are as in the settings. Raises: ValueError."""
        own = host_name(f"[{listen_host}]" if ":" in listen_host else listen_host)
        address = _address(own)
        self._any_address = address is not None and address.is_unspecified
        local = self._any_address or own == "localhost" or (address and address.is_loopback)
        self._names = frozenset({own, *map(host_name, names), *(_LOOPBACK if local else ())})

    def check(self, headers: Sequence[str]) -> None:
        """Checks the values of a request's `Host` headers. Raises: MisdirectedRequestError."""
        if len(headers) != 1:
            raise MisdirectedRequestError("a request must have exactly one Host header")
        try:
            name = host_name(headers[0])
        except ValueError:
            raise MisdirectedRequestError("the Host header is not host or host:port") from None
        if name in self._names or (self._any_address and _address(name) is not None):
            return
        raise MisdirectedRequestError(
            f"this control plane does not answer for the host {name[:_MOST_SHOWN]}: its operator "
            "can add it to PADDOCK_ALLOWED_HOSTS"
        )


def host_name(text: str) -> str:
    """The normalized host of a `Host` header, without the port. Raises: ValueError."""
    found = _HOST.fullmatch(text)
    if found is None:
        raise ValueError("must be a host name or an address, in ASCII")
    name = found[1].lower()
    if name.startswith("["):
        return str(ipaddress.IPv6Address(name[1:-1]))
    return name.removesuffix(".")


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None
