"""The addresses that are not on the public Internet. Pure.

The list is written out instead of `ipaddress.is_global`, which differs between versions of Python.
"""

import ipaddress
from typing import NamedTuple

from orchestrator.settings.hosts import Address, plain

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Special(NamedTuple):
    """A range of special addresses; `listable`: a rule that names addresses may allow it."""

    network: Network
    kind: str
    listable: bool = False


def _special(kind: str, *networks: str, listable: bool = False) -> tuple[Special, ...]:
    return tuple(Special(ipaddress.ip_network(each), kind, listable) for each in networks)


_SPECIAL = (
    # The host of virtual machines at one provider, which is in no range below.
    *_special("metadata", "168.63.129.16/32"),
    # These are in private or shared ranges, but no rule may list them.
    *_special("metadata", "100.100.100.200/32", "fd00:ec2::/32"),
    *_special("unspecified", "0.0.0.0/8", "::/128"),
    *_special("loopback", "127.0.0.0/8", "::1/128"),
    *_special("link-local", "169.254.0.0/16", "fe80::/10"),
    *_special("multicast", "224.0.0.0/4", "ff00::/8"),
    *_special("private", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", listable=True),
    *_special("private", "fc00::/7", listable=True),
    *_special("shared", "100.64.0.0/10", listable=True),
    *_special("reserved", "192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "198.18.0.0/15"),
    *_special("reserved", "198.51.100.0/24", "203.0.113.0/24", "240.0.0.0/4"),
    # Teredo and 6to4 lead to the IPv4 address that they contain.
    *_special("reserved", "2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"),
)
# All other IPv6 addresses are not assigned, or contain an IPv4 address, as those of NAT64 do.
_ASSIGNED = ipaddress.IPv6Network("2000::/3")


def special(address: Address) -> Special | None:
    """The range of special addresses to which it belongs; None for a public address."""
    address = plain(address)
    for each in _SPECIAL:
        if address.version == each.network.version and address in each.network:
            return each
    if isinstance(address, ipaddress.IPv6Address) and address not in _ASSIGNED:
        return Special(ipaddress.IPv6Network("::/0"), "reserved")
    return None


def unlistable(network: Network) -> str | None:
    """The kind of the first range in it that no rule may allow; None if there is none."""
    for each in _SPECIAL:
        same = network.version == each.network.version
        if same and not each.listable and network.overlaps(each.network):
            return each.kind
    if isinstance(network, ipaddress.IPv6Network) and not _is_listable(network):
        return "reserved"
    return None


def _is_listable(network: ipaddress.IPv6Network) -> bool:
    private = ipaddress.IPv6Network("fc00::/7")
    return network.subnet_of(_ASSIGNED) or network.subnet_of(private)
