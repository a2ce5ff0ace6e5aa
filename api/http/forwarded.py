"""Whose request it is, where a gateway passes it on."""

import ipaddress
from collections.abc import Sequence

from aiohttp import web


def client_of(request: web.Request) -> str | None:
    """The address of the client that a gateway names; None: no gateway has passed it on.

    Only the listener for gateways has TLS here, and it admits nobody else. What any other client
    says in this header counts for nothing.
    """
    if not _is_of_gateway(request):
        return None
    return address_in(request.headers.getall("X-Forwarded-For", ()))


def scheme_of(request: web.Request) -> str:
    """What the client has spoken, http or https, also with a gateway between."""
    if not _is_of_gateway(request):
        return request.scheme
    return "http" if request.headers.getall("X-Forwarded-Proto", ()) == ["http"] else "https"


def _is_of_gateway(request: web.Request) -> bool:
    transport = request.transport
    return transport is not None and transport.get_extra_info("ssl_object") is not None


def address_in(values: Sequence[str]) -> str | None:
    """The address in the header's one value, in its usual form; None: there is none."""
    if len(values) != 1:
        return None
    try:
        return str(ipaddress.ip_address(values[0]))
    except ValueError:
        return None
