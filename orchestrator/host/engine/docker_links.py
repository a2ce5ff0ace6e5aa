"""Links of sandboxes to their bridge that this process makes, where it can.

The engine takes a tenth of a second to connect a container to a network of the user's, and gives it
a name server that sandboxes must not reach. A sandbox whose container has no network, and gets a
port of the same bridge from here, is behind the same rules of the engine and of ours: they name the
bridge. In addition, the kernel keeps its port from all other such ports.

Which addresses are in use, the kernel knows: each is that of a number, which is in its port's name.
A port disappears with its sandbox's network namespace, so nothing is recorded, and nothing is left.
"""

import logging
import os
import socket
import threading
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

from docker.types import IPAMConfig, IPAMPool

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.ground.file_handles import opened
from orchestrator.host.node.network_link import Wire, make_link, rejoin, try_link

# Runtimes whose containers have the interfaces that appear in their namespace later. Others, such
# as gVisor's, take those that are there at the start.
RUNTIMES = frozenset({"runc", "crun", "io.containerd.runc.v2"})
# The engine's name of its host's namespace, once a container has had that.
_ENGINES = Path("/var/run/docker/netns/default")
_OWN = Path("/proc/self/ns/net")
_MTU = "com.docker.network.driver.mtu"
_USUAL_MTU = 1500
# Ports are named by their number in four digits, below the kernel's limit of 15 characters.
_MOST = 0xFFFF

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LinkNetwork:
    """The network that has links: its addresses, of which they have the upper half."""

    subnet: IPv4Network
    gateway: IPv4Address
    mtu: int

    @property
    def engines(self) -> IPv4Network:
        """The lower half, which the engine gives to its own containers; it has the gateway."""
        return next(self.subnet.subnets(1))

    @property
    def most(self) -> int:
        """The highest number of a link; the last address of all is for broadcasts."""
        return min(_MOST, self.subnet.num_addresses // 2 - 2)

    @property
    def pool(self) -> IPAMConfig:
        """The same addresses, of which the engine gives away only its half."""
        pool = IPAMPool(str(self.subnet), iprange=str(self.engines), gateway=str(self.gateway))
        return IPAMConfig(pool_configs=[pool])

    def address(self, number: int) -> IPv4Interface:
        """The address of the link with that number, from 0, in the upper half."""
        half = int(self.subnet.broadcast_address) - self.subnet.num_addresses // 2 + 1
        return IPv4Interface((half + number, self.subnet.prefixlen))


def link_network(found: dict[str, Any]) -> LinkNetwork | None:
    """The network that the engine describes so; None if it has no room for links."""
    try:
        (addresses,) = found["IPAM"]["Config"]
        network = LinkNetwork(
            IPv4Network(addresses["Subnet"]),
            IPv4Address(addresses["Gateway"]),
            int(found["Options"].get(_MTU, _USUAL_MTU)),
        )
    except (KeyError, TypeError, ValueError):
        return None
    return network if network.most > 0 and network.gateway in network.engines else None


def halved(found: dict[str, Any]) -> bool:
    """Whether the engine keeps to its half of the network that it describes so."""
    network = link_network(found)
    if network is None:
        return False
    return bool(found["IPAM"]["Config"][0].get("IPRange") == str(network.engines))


class Links:
    """Links to one bridge. Its methods block and may be called from any thread."""

    def __init__(self, bridge: str) -> None:
        self._bridge = bridge
        self._lock = threading.Lock()
        self._next = 1
        # Where links are made; None: here, they can't be.
        self.network: LinkNetwork | None = None

    def possible(self, found: dict[str, Any]) -> LinkNetwork | None:
        """The network, as the engine describes it, if a link could be made on it; else None."""
        network = link_network(found)
        if network is None:
            return None
        try:
            # On another machine, or in a container, the engine's bridges are not this process's.
            if not os.path.samefile(_ENGINES, _OWN):
                return None
            try_link(self._wire(network, 0))
        except OSError as error:
            _log.info("sandboxes' links are made by the engine: %s", error)
            return None
        return network

    def serve(self, runtime: str | None) -> bool:
        """Whether sandboxes under that runtime of the engine get their link here."""
        return self.network is not None and runtime in RUNTIMES

    def connect(self, container: dict[str, Any]) -> None:
        """Links a running container without a network, as the engine describes it.

        Raises: EngineUnavailableError; the container must not be used then.
        """
        network = self.network
        if network is None:
            raise EngineUnavailableError("the open network was removed meanwhile")
        try:
            # Opened once, so that all steps are about the same namespace.
            key = container["NetworkSettings"]["SandboxKey"]
            with opened(key, os.O_RDONLY | os.O_CLOEXEC) as namespace:
                self._make(network, namespace)
        except OSError as error:
            raise EngineUnavailableError(
                f"the sandbox could not be connected to the open network: {error}"
            ) from error

    def reconnect(self) -> None:
        """Makes the ports of sandboxes that run ports of a bridge that was made anew."""
        for index, name in socket.if_nameindex():
            if name.startswith(self._bridge) and len(name) == len(self._bridge) + 4:
                try:
                    rejoin(index, self._bridge)
                except OSError as error:  # its sandbox may have ended
                    _log.warning("%s is without its network: %s", name, error)

    def _make(self, network: LinkNetwork, namespace: int) -> None:
        """Raises: OSError, also if there is no free address."""
        used = {name for _, name in socket.if_nameindex()}
        for _ in range(network.most):
            wire = self._wire(network, self._number(network))
            if wire.name not in used:
                make_link(wire, namespace)
                return
        raise OSError("all its addresses are in use")

    def _number(self, network: LinkNetwork) -> int:
        """Numbers in turn, so that a former address is not used again soon."""
        with self._lock:
            number = self._next if self._next <= network.most else 1
            self._next = number + 1
            return number

    def _wire(self, network: LinkNetwork, number: int) -> Wire:
        name = f"{self._bridge}{number:04x}"
        return Wire(self._bridge, name, network.address(number), network.gateway, network.mtu)
