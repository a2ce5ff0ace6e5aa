"""A link between a bridge of this host and the network namespace of a sandbox.

Making one takes CAP_NET_ADMIN in both namespaces, and CAP_SYS_ADMIN to enter the second. The link
belongs to that namespace: the kernel removes both ends with it, however it ends.
"""

import ctypes
import os
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

from orchestrator.host.node import netlink

# As the engine calls it.
INSIDE = "eth0"
_NEW_NETWORK = 0x40000000
_OWN = "/proc/thread-self/ns/net"


@dataclass(frozen=True, slots=True)
class Wire:
    """What a link connects: a port of the `bridge` named `name`, and the address inside."""

    bridge: str
    name: str
    address: IPv4Interface
    gateway: IPv4Address
    mtu: int  # bytes


def make_link(wire: Wire, namespace: int) -> None:
    """Makes the link to the namespace of that descriptor, which must not have one.

    Raises: FileExistsError if there is an interface with the port's name; OSError, also if the
    namespace is this process's own. Nothing is left then.
    """
    if os.path.samestat(os.fstat(namespace), os.stat(_OWN)):
        raise OSError("the namespace is the host's own")
    index = netlink.make_pair(
        wire.name, wire.mtu, socket.if_nametoindex(wire.bridge), INSIDE, namespace
    )
    try:
        # Packets from the bridge have a source of its network.
        _set(f"ipv4/conf/{wire.bridge}/rp_filter", 1)
        _close(wire.name)
        netlink.raise_port(index)
        _in_thread(lambda: _configure(wire, namespace))
    except BaseException:
        with suppress(OSError):  # gone with the namespace
            netlink.remove_link(index)
        raise


def rejoin(index: int, bridge: str) -> None:
    """Makes the port of a link a port of another bridge. Raises: OSError."""
    netlink.join_bridge(index, socket.if_nametoindex(bridge))
    netlink.raise_port(index)


def try_link(wire: Wire) -> None:
    """Makes such a link to a namespace of its own, and removes both. Raises: OSError."""

    def enter() -> None:
        _libc("unshare", _NEW_NETWORK)
        held.append(os.open(_OWN, os.O_RDONLY | os.O_CLOEXEC))

    held: list[int] = []
    try:
        _in_thread(enter)
        make_link(wire, held[0])
        netlink.remove_link(socket.if_nametoindex(wire.name))
    finally:
        for descriptor in held:
            os.close(descriptor)


def _configure(wire: Wire, namespace: int) -> None:
    """Runs in a thread of its own, which stays in the namespace."""
    _libc("setns", namespace, _NEW_NETWORK)
    _take_ipv6(INSIDE)
    index = socket.if_nametoindex(INSIDE)
    netlink.add_address(index, wire.address)
    netlink.raise_link(index)
    netlink.add_default_route(index, wire.gateway)


def _close(port: str) -> None:
    """Closes the host to a port, which has its own packets if its bridge is removed.

    The host answers no question for its addresses there, so no packet can be addressed to it, and
    accepts no source. Raises: OSError.
    """
    _set(f"ipv4/conf/{port}/arp_ignore", 8)
    _set(f"ipv4/conf/{port}/rp_filter", 1)
    _take_ipv6(port)


def _take_ipv6(name: str) -> None:
    """Raises: OSError."""
    with suppress(FileNotFoundError):  # a kernel without IPv6
        _set(f"ipv6/conf/{name}/disable_ipv6", 1)


def _set(setting: str, number: int) -> None:
    """Sets one of the kernel's settings in this thread's namespace. Raises: OSError."""
    Path("/proc/sys/net", setting).write_text(str(number), encoding="ascii")


def _in_thread(work: Callable[[], None]) -> None:
    """Runs it in a thread that ends with it, so no other work ever is in its namespace.

    Raises: the error of the work.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="network namespace") as one:
        one.submit(work).result()


def _libc(name: str, *arguments: int) -> None:
    """Calls a function of the C library. Raises: OSError."""
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
