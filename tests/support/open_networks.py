"""Networks of the engine with containers on them, servers, and attempts to reach them."""

import json
import os
import re
import secrets
import select
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import docker

from orchestrator.host.engine.base import LABEL_INSTANCE, LABEL_LINK
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.engine.docker_links import Links
from tests.support.limits import PROGRAM_SECONDS

# Prints the result of each connection: `open` only if a server greeted.
PROBE = """
import socket, sys
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as peer:
            print(target, "open" if peer.recv(5) == b"hello" else "silent")
    except OSError:
        print(target, "closed")
"""
# Writes to the given file when it listens.
GREETER = """
import socket, sys
server = socket.create_server(("0.0.0.0", 8080))
with open(sys.argv[1], "w") as ready:
    ready.write("listening")
while True:
    peer, _ = server.accept()
    peer.sendall(b"hello")
    peer.close()
"""


@dataclass(frozen=True)
class Network:
    """A network of the engine, and who links containers to it: None is the engine."""

    name: str
    links: Links | None = None
    instance: str = ""


async def open_network(engine: DockerEngine, image: str, kind: str) -> Network:
    """The engine's open network, with links of that kind."""
    name = (await engine.ensure_open_network(image)).name
    links = engine._network.links
    assert links.serve("runc") is (kind == "own")
    return Network(name, links if kind == "own" else None, engine.instance)


@contextmanager
def plain_network(client: docker.APIClient) -> Iterator[Network]:
    """A network that nobody restricts."""
    name = f"paddock-test-{secrets.token_hex(4)}"
    client.create_network(name, driver="bridge")
    try:
        yield Network(name)
    finally:
        client.remove_network(name)


class Ready:
    """A pipe through which a server reports that it listens."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "ready"
        os.mkfifo(self.path)
        self._fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)

    def wait(self) -> None:
        assert self.read() == "listening"

    def read(self) -> str:
        """What the server says next."""
        assert select.select([self._fd], [], [], 60)[0], "the server says nothing"
        return os.read(self._fd, 64).decode()

    def close(self) -> None:
        os.close(self._fd)


@contextmanager
def greeter() -> Iterator[int]:
    """A server on every address of the host, of IPv6 too; its port."""
    server = (
        socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        if socket.has_dualstack_ipv6()
        else socket.create_server(("0.0.0.0", 0))
    )

    def serve() -> None:
        with suppress(OSError):
            while True:
                peer, _ = server.accept()
                with peer, suppress(OSError):
                    peer.sendall(b"hello")

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server.getsockname()[1]
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=PROGRAM_SECONDS)


@contextmanager
def address_of_host(address: str) -> Iterator[None]:
    ip("address", "add", f"{address}/32", "dev", "lo")
    try:
        yield
    finally:
        ip("address", "del", f"{address}/32", "dev", "lo")


@contextmanager
def machine_beyond(address: str, ready: Ready, server: str = GREETER) -> Iterator[None]:
    """A server on port 8080 in its own network namespace, one hop from the host.

    The host has the next address.
    """
    host = str(IPv4Address(address) + 1)
    name = f"pdkt{secrets.token_hex(3)}"
    with ExitStack() as stack:
        ip("netns", "add", name)
        stack.callback(ip, "netns", "del", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", f"{host}/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "address", "add", f"{address}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "route", "add", "default", "via", host)
        command = ["ip", "netns", "exec", name, "python3", "-c", server, str(ready.path)]
        greeter = stack.enter_context(subprocess.Popen(command))
        stack.callback(greeter.kill)
        ready.wait()
        yield


@contextmanager
def container(
    client: docker.APIClient,
    image: str,
    network: Network,
    *argv: str,
    bind: Path | None = None,
    ports: dict[int | str, Any] | None = None,
    capabilities: tuple[str, ...] = (),
) -> Iterator[dict[str, Any]]:
    """A running container on that network, as the engine describes it; `sleep` without words."""
    links = network.links
    labels = {LABEL_INSTANCE: network.instance, LABEL_LINK: "own"} if links else {}
    made = client.create_container(
        image,
        entrypoint=list(argv or ("sleep", "600")),
        labels=labels,
        ports=list(ports or {}),
        host_config=client.create_host_config(
            network_mode="none" if links else network.name,
            cap_drop=["ALL"],
            cap_add=list(capabilities),
            binds=[f"{bind}:{bind}"] if bind else [],
            port_bindings=ports,
        ),
    )
    try:
        client.start(made["Id"])
        found = client.inspect_container(made["Id"])
        if links:
            links.connect(found)
        yield found
    finally:
        client.remove_container(made["Id"], force=True)


def executed(client: docker.APIClient, found: dict[str, Any], *argv: str) -> str:
    """The output of a program in the container."""
    made = client.exec_create(found["Id"], list(argv))
    said: bytes = client.exec_start(made["Id"])
    return said.decode()


def probe(
    client: docker.APIClient, image: str, network: Network, targets: dict[str, str]
) -> dict[str, str]:
    """The result of a connection from that network to each named target `host:port`."""
    with container(client, image, network) as found:
        lines = executed(client, found, "python3", "-c", PROBE, *targets.values()).splitlines()
    seen = dict(line.split(" ") for line in lines)
    return {name: seen[target] for name, target in targets.items()}


@contextmanager
def greeting(
    client: docker.APIClient, image: str, network: Network, ready: Ready, port: int | None = None
) -> Iterator[str]:
    """The address of a container with a greeter on port 8080, which the host may publish."""
    ports: dict[int | str, Any] | None = None if port is None else {8080: port}
    with container(client, image, network, bind=ready.path, ports=ports) as found:
        made = client.exec_create(found["Id"], ["python3", "-c", GREETER, str(ready.path)])
        client.exec_start(made["Id"], detach=True)
        ready.wait()
        yield interface(found)["addr_info"][0]["local"]


def interface(found: dict[str, Any]) -> dict[str, Any]:
    """The container's eth0, as `ip` describes it."""
    key = found["NetworkSettings"]["SandboxKey"]
    command = ["nsenter", f"--net={key}", "ip", "-json", "-details", "address", "show", "eth0"]
    shown = subprocess.run(command, capture_output=True, check=True, timeout=PROGRAM_SECONDS)
    (eth0,) = (each for each in json.loads(shown.stdout) if each)
    described: dict[str, Any] = eth0
    return described


def gateway(client: docker.APIClient, network: str) -> str:
    address: str = client.inspect_network(network)["IPAM"]["Config"][0]["Gateway"]
    return address


def host_addresses(bridge: str) -> list[str]:
    """The host's addresses on its own links, docker's usual bridge and this one.

    Bridges and links of other tests come and go.
    """
    listing = ["ip", "-json", "address", "show"]
    links = json.loads(
        subprocess.run(listing, capture_output=True, check=True, timeout=PROGRAM_SECONDS).stdout
    )
    passing = re.compile(r"br-|pdk|veth|lo$")
    found = []
    for link in links:
        name = link["ifname"]
        if name == bridge or (link["operstate"] != "DOWN" and not passing.match(name)):
            entries = [entry for entry in link.get("addr_info", []) if entry]
            # From a sandbox, the link of a link-local address is its own.
            found += [
                entry["local"] + ("%eth0" if entry["scope"] == "link" else "") for entry in entries
            ]
    return found
