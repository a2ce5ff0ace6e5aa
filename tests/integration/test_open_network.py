"""The network of high: containers on its bridge reach neither the host nor link-local addresses.

Every test of isolation is about both kinds of links: ours and the engine's.
"""

import json
import os
import re
import secrets
import select
import socket
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.errors import APIError, NotFound

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine import docker_links, docker_namespaces
from orchestrator.host.engine.base import LABEL_INSTANCE
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.engine.docker_links import LABEL_LINK, Links
from tests.support.attempts import attempt
from tests.support.limits import PROGRAM_SECONDS

METADATA = "169.254.169.254"
# A link-local address of another machine: packets to it are forwarded, as in a cloud.
BEYOND = "169.254.77.1"

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


@pytest.fixture(scope="module")
def image() -> str:
    return os.environ.get("PADDOCK_TEST_IMAGE", "paddock/sandbox:latest")


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    client = docker.APIClient(version="auto")
    yield client
    client.close()


@pytest.fixture(params=["own", "engine"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who makes the links of sandboxes."""
    made_by: str = request.param
    if made_by == "engine":
        # As in a control plane that runs in a container.
        monkeypatch.setattr(docker_links, "_ENGINES", Path("/nowhere"))
    return made_by


@pytest.fixture
async def engine(image: str, kind: str) -> AsyncIterator[DockerEngine]:
    engine = DockerEngine(secrets.token_hex(4), timeout=60)
    yield engine
    await engine.remove_open_network(image)
    await engine.close()


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
        assert select.select([self._fd], [], [], 60)[0], "the server does not start"
        assert os.read(self._fd, 64) == b"listening"

    def close(self) -> None:
        os.close(self._fd)


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Ready]:
    ready = Ready(tmp_path)
    yield ready
    ready.close()


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
def machine_beyond(address: str, ready: Ready) -> Iterator[None]:
    """A greeter on port 8080 in its own network namespace, one hop from the host."""
    name = f"pdkt{secrets.token_hex(3)}"
    with ExitStack() as stack:
        ip("netns", "add", name)
        stack.callback(ip, "netns", "del", name)
        ip("link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", name)
        ip("address", "add", "169.254.77.2/30", "dev", name)
        ip("link", "set", name, "up")
        ip("-n", name, "address", "add", f"{address}/30", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "route", "add", "default", "via", "169.254.77.2")
        command = ["ip", "netns", "exec", name, "python3", "-c", GREETER, str(ready.path)]
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
    ports: dict[int, int] | None = None,
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
    ports = None if port is None else {8080: port}
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


def rules(bridge: str) -> list[str]:
    """The host's rules that name the bridge, from all back ends."""
    found: list[str] = []
    for command in ("iptables-save", "iptables-legacy-save", "ip6tables-save"):
        with suppress(FileNotFoundError):
            saved = subprocess.run(
                [command], capture_output=True, text=True, timeout=PROGRAM_SECONDS
            )
            found += [line for line in saved.stdout.splitlines() if bridge in line]
    return found


def flush(bridge: str) -> None:
    """Removes the bridge's INPUT rule, as a reload of the firewall would."""
    rule = ["-D", "INPUT", "-i", bridge, "-j", "DROP"]
    subprocess.run(["iptables", *rule], check=True, timeout=PROGRAM_SECONDS)


@attempt(
    "the host, its gateway address, metadata services and other link-local addresses",
    layer="packet filter",
    levels="high",
)
async def test_the_host_and_link_local_addresses_are_out_of_reach(
    engine: DockerEngine, client: docker.APIClient, image: str, ready: Ready, kind: str
) -> None:
    network = await open_network(engine, image, kind)
    with (
        plain_network(client) as plain,
        greeter() as port,
        address_of_host(METADATA),
        machine_beyond(BEYOND, ready),
    ):
        own = host_addresses(f"pdk{engine.instance}")
        usual = [address for address in own if ":" not in address]

        def targets(bridge: Network, *addresses: str) -> dict[str, str]:
            return {
                "gateway": f"{gateway(client, bridge.name)}:{port}",
                "metadata": f"{METADATA}:{port}",
                "link-local": f"{BEYOND}:8080",
                **{address: f"{address}:{port}" for address in addresses},
            }

        # Sandboxes have no IPv6 at all; the host reaches itself by it.
        reached = probe(client, image, plain, targets(plain, *usual))
        assert set(reached.values()) == {"open"}, "the test shows nothing"
        for address in own:
            if ":" in address and "%" not in address:
                with socket.create_connection((address, port), 10) as peer:
                    assert peer.recv(5) == b"hello", "the test shows nothing"
        reached = probe(client, image, network, targets(network, *own))
        assert set(reached.values()) == {"closed"}, reached


@attempt(
    "another sandbox, over the network",
    layer="bridge without traffic between its members",
    levels="high",
)
async def test_containers_do_not_reach_each_other(
    engine: DockerEngine, client: docker.APIClient, image: str, ready: Ready, kind: str
) -> None:
    network = await open_network(engine, image, kind)
    with plain_network(client) as plain:
        for bridge, expected in ((plain, "open"), (network, "closed")):
            with greeting(client, image, bridge, ready) as address:
                seen = probe(client, image, bridge, {"neighbour": f"{address}:8080"})
                assert seen == {"neighbour": expected}


@attempt(
    "a container on another network of the engine, at its address and at its published port",
    layer="packet filter",
    levels="high",
)
async def test_containers_on_other_networks_are_out_of_reach(
    engine: DockerEngine, client: docker.APIClient, image: str, ready: Ready, kind: str
) -> None:
    network = await open_network(engine, image, kind)
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    with plain_network(client) as plain, greeting(client, image, plain, ready, port) as address:
        targets = {"address": f"{address}:8080"}
        for name in (plain.name, network.name):
            targets[name] = f"{gateway(client, name)}:{port}"
        assert probe(client, image, plain, targets)["address"] == "open", "the test shows nothing"
        with socket.create_connection((gateway(client, plain.name), port), 10) as peer:
            assert peer.recv(5) == b"hello", "the test shows nothing"
        assert set(probe(client, image, network, targets).values()) == {"closed"}


@attempt(
    "from a container on another network of the engine, a sandbox",
    layer="packet filter",
    levels="high",
)
async def test_sandboxes_are_out_of_reach_of_other_networks(
    engine: DockerEngine, client: docker.APIClient, image: str, ready: Ready, kind: str
) -> None:
    network = await open_network(engine, image, kind)
    with plain_network(client) as plain, greeting(client, image, network, ready) as address:
        targets = {"sandbox": f"{address}:8080"}
        assert probe(client, image, plain, targets) == {"sandbox": "closed"}


async def test_it_is_made_once_and_removed_whole(
    engine: DockerEngine, client: docker.APIClient, image: str, kind: str
) -> None:
    opened = await open_network(engine, image, kind)
    network = opened.name
    bridge = f"pdk{engine.instance}"
    installed = rules(bridge)
    assert any("DOCKER-USER" in rule and "169.254.0.0/16" in rule for rule in installed)
    # Another process of the same instance finds the network in place.
    again = DockerEngine(engine.instance, timeout=60)
    assert (await again.ensure_open_network(image)).name == network
    assert rules(bridge) == installed

    with container(client, image, opened):
        await again.remove_open_network(image)
        assert rules(bridge) == installed
        assert client.inspect_network(network)["Name"] == network
    await again.remove_open_network(image)
    await again.remove_open_network(image)
    await again.close()
    assert rules(bridge) == []
    with pytest.raises(NotFound):
        client.inspect_network(network)
    assert (
        client.containers(all=True, filters={"label": f"paddock.instance={engine.instance}"}) == []
    )


async def test_rules_that_somebody_flushed_come_back(engine: DockerEngine, image: str) -> None:
    await engine.ensure_open_network(image)
    bridge = f"pdk{engine.instance}"
    before = rules(bridge)
    flush(bridge)
    again = DockerEngine(engine.instance, timeout=60)
    await again.ensure_open_network(image)
    await again.close()
    assert sorted(rules(bridge)) == sorted(before)


async def test_a_renewal_restores_rules_that_are_still_trusted(
    engine: DockerEngine, image: str
) -> None:
    """So sandboxes that run are behind them again, without a new one."""
    await engine.ensure_open_network(image)
    bridge = f"pdk{engine.instance}"
    before = rules(bridge)
    flush(bridge)
    await engine.ensure_open_network(image)
    assert rules(bridge) != before, "the test shows nothing"
    await engine.ensure_open_network(image, renew=True)
    assert sorted(rules(bridge)) == sorted(before)


async def test_without_rules_there_is_no_network(
    client: docker.APIClient, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image whose iptables do nothing useful: high is refused and nothing is left."""
    # The host's own programs would take the name server away.
    monkeypatch.setattr(docker_namespaces, "_PATH", "/nowhere")
    name = f"paddock-test-{secrets.token_hex(4)}:latest"
    repository = name.removesuffix(":latest")
    programs = ("/usr/sbin/xtables-nft-multi", "/usr/sbin/xtables-legacy-multi")
    with container(client, image, Network("none"), "rm", "-f", *programs) as broken:
        client.wait(broken["Id"], timeout=PROGRAM_SECONDS)
        client.commit(broken["Id"], repository=repository, tag="latest")
    engine = DockerEngine(secrets.token_hex(4), timeout=60)
    try:
        with pytest.raises(EngineUnavailableError, match="DOCKER-USER"):
            await engine.ensure_open_network(name)
        with pytest.raises(EngineUnavailableError, match="images build"):
            await engine.ensure_open_network("paddock/there-is-none:latest")
        with (
            container(client, image, Network("bridge")) as found,
            pytest.raises(EngineUnavailableError, match="could not be taken"),
        ):
            await engine.close_names(found["Id"], name)
        assert client.networks(names=[f"paddock-open-{engine.instance}"]) == []
        assert rules(f"pdk{engine.instance}") == []
        assert await engine.list() == []
    finally:
        await engine.close()
        with suppress(APIError):
            client.remove_image(name, force=True)
