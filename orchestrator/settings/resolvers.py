"""Name servers of sandboxes with a network, which are IPv4 addresses. Pure functions."""

import ipaddress

# The C library uses no more than this number.
MOST_RESOLVERS = 3


def check_resolver(text: str) -> str:
    """Returns the address. Raises: ValueError unless a sandbox can reach it."""
    try:
        address = ipaddress.IPv4Address(text)
    except ValueError:
        raise ValueError(f"{text!r} must be an IPv4 address") from None
    if address.is_loopback or address.is_unspecified or address.is_multicast:
        raise ValueError(f"{text!r} must be an address that a sandbox can reach")
    if address == ipaddress.IPv4Address("255.255.255.255"):
        raise ValueError(f"{text!r} must be the address of one name server")
    return str(address)


def usable(resolv_conf: str) -> tuple[str, ...]:
    """The name servers of a resolv.conf text, without those that no sandbox can reach."""
    found: dict[str, None] = {}
    for line in resolv_conf.splitlines():
        words = line.split()
        if len(words) < 2 or words[0] != "nameserver":
            continue
        try:
            found[check_resolver(words[1])] = None
        except ValueError:
            continue  # IPv6, which the bridge lacks, or the host's own loopback address
    return tuple(found)[:MOST_RESOLVERS]


def resolv_conf(resolvers: tuple[str, ...]) -> str:
    """The file for a sandbox. It has no search list, to keep the host's domains private."""
    if not resolvers:
        return "# This sandbox has no name server.\n"
    return "".join(f"nameserver {address}\n" for address in resolvers)
