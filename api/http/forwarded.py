"""Whose request it is, where a gateway passes it on."""

import ipaddress
from collections.abc import Sequence

from aiohttp import web


def client_of(request: web.Request) -> str | None:
    """The address of the client that a gateway names; None: no gateway has passed it on.

    Only the listener for gateways has TLS here, and it admits nobody else. What any other client
    says in this header counts for nothing.
    """
    transport = request.transport
    if transport is None or transport.get_extra_info("ssl_object") is None:
        return None
    return address_in(request.headers.getall("X-Forwarded-For", ()))


def address_in(values: Sequence[str]) -> str | None:
    """The address in the header's one value, in its usual form; None: there is none."""
    if len(values) != 1:
        return None
    try:
        return str(ipaddress.ip_address(values[0]))
    except ValueError:
        return None
