"""Requests to the kernel about network links, addresses and routes, as rtnetlink has them.

Each concerns the network namespace that the calling thread is in. The numbers are those of the
kernel's headers `linux/rtnetlink.h`, `linux/if_link.h` and `linux/if_addr.h`.
"""

import os
import socket
import struct
from ipaddress import IPv4Address, IPv4Interface

_ERROR = 2
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 0x1, 0x4, 0x200, 0x400
_NEW_LINK, _DELETE_LINK, _NEW_ADDRESS, _NEW_ROUTE = 16, 17, 20, 24
_NESTED = 0x8000
_UP = 0x1
_LINK_NAME, _LINK_MTU, _LINK_MASTER, _LINK_INFO, _LINK_NAMESPACE = 3, 4, 10, 18, 28
_KIND, _DATA, _PORT_KIND, _PORT_DATA = 1, 2, 4, 5
_VETH_PEER, _PORT_ISOLATED = 1, 33
_ADDRESS, _LOCAL, _BROADCAST = 1, 2, 4
_OUT, _GATEWAY = 4, 5
# The main table, set up by hand, to anywhere, unicast.
_ROUTE = (254, 3, 0, 1)
_SECONDS = 10.0
_ANSWER_BYTES = 1 << 16


def make_pair(name: str, mtu: int, bridge: int, peer: str, namespace: int) -> int:
    """Makes a pair of linked interfaces, both down; returns the index of the first.

    The first is `name`, here, a port of the bridge with that index; the second is `peer`, in the
    namespace of that descriptor from its beginning.
    Raises: FileExistsError if there is an interface with one of the names; OSError.
    """
    size = _attribute(_LINK_MTU, struct.pack("I", mtu))
    place = _attribute(_LINK_NAMESPACE, struct.pack("i", namespace))
    other = _attribute(_VETH_PEER, _link() + _named(peer) + size + place)
    info = _attribute(_KIND, b"veth") + _nested(_DATA, other)
    master = _attribute(_LINK_MASTER, struct.pack("I", bridge))
    body = _link() + _named(name) + size + master + _nested(_LINK_INFO, info)
    _ask(_NEW_LINK, _CREATE | _EXCLUSIVE, body)
    return socket.if_nametoindex(name)


def raise_port(index: int) -> None:
    """Sets up a port of a bridge. No frame passes between it and other such ports. Raises: OSError.

    The kernel knows isolated ports since 4.18.
    """
    isolated = _nested(_PORT_DATA, _attribute(_PORT_ISOLATED, b"\x01"))
    info = _attribute(_PORT_KIND, b"bridge") + isolated
    _ask(_NEW_LINK, 0, _link(index, _UP) + _nested(_LINK_INFO, info))


def join_bridge(index: int, bridge: int) -> None:
    """Makes an interface a port of that bridge. Raises: OSError."""
    _ask(_NEW_LINK, 0, _link(index) + _attribute(_LINK_MASTER, struct.pack("I", bridge)))


def raise_link(index: int) -> None:
    """Sets up an interface. Raises: OSError."""
    _ask(_NEW_LINK, 0, _link(index, _UP))


def remove_link(index: int) -> None:
    """Removes an interface, and the other of its pair. Raises: OSError."""
    _ask(_DELETE_LINK, 0, _link(index))


def add_address(index: int, address: IPv4Interface) -> None:
    """Gives an interface an address in its network. Raises: OSError."""
    head = struct.pack("BBBBI", socket.AF_INET, address.network.prefixlen, 0, 0, index)
    own = address.ip.packed
    body = head + _attribute(_LOCAL, own) + _attribute(_ADDRESS, own)
    _ask(_NEW_ADDRESS, _CREATE | _EXCLUSIVE, body + _attribute(_BROADCAST, _last(address)))


def add_default_route(index: int, gateway: IPv4Address) -> None:
    """Leads everything without another route to the gateway. Raises: OSError."""
    table, origin, scope, kind = _ROUTE
    head = struct.pack("BBBBBBBBI", socket.AF_INET, 0, 0, 0, table, origin, scope, kind, 0)
    body = head + _attribute(_GATEWAY, gateway.packed)
    _ask(_NEW_ROUTE, _CREATE | _EXCLUSIVE, body + _attribute(_OUT, struct.pack("I", index)))


def _last(address: IPv4Interface) -> bytes:
    return address.network.broadcast_address.packed


def _link(index: int = 0, flags: int = 0) -> bytes:
    """The head of messages about an interface; these flags are set, others stay."""
    return struct.pack("BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, flags)


def _named(name: str) -> bytes:
    return _attribute(_LINK_NAME, name.encode("ascii") + b"\0")


def _nested(kind: int, content: bytes) -> bytes:
    return _attribute(kind | _NESTED, content)


def _attribute(kind: int, content: bytes) -> bytes:
    return struct.pack("HH", 4 + len(content), kind) + content + bytes(-len(content) % 4)


def _ask(kind: int, flags: int, body: bytes) -> None:
    """Sends a request, which the kernel answers at once. Raises: OSError."""
    flags |= _REQUEST | _ACK
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(_SECONDS)
        kernel.bind((0, 0))
        kernel.send(struct.pack("IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        answer = kernel.recv(_ANSWER_BYTES)
    answered, code = struct.unpack_from("H", answer, 4)[0], struct.unpack_from("i", answer, 16)[0]
    if answered != _ERROR:
        raise OSError("the kernel's answer is no confirmation")
    if code:
        raise OSError(-code, os.strerror(-code))
