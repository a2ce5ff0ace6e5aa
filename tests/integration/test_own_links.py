"""Links of sandboxes that the control plane makes: what they are, and what becomes of them."""

import os
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path

import docker
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine import docker_links
from orchestrator.host.engine.docker_links import Links
from orchestrator.host.node import network_link
from orchestrator.sandbox.sandboxes.parts import LABEL_SANDBOX
from tests.support.attempts import attempt
from tests.support.box import Box
from tests.support.limits import PROGRAM_SECONDS
from tests.support.open_networks import (
    PROBE,
    Network,
    Ready,
    address_of_host,
    container,
    executed,
    greeting,
    interface,
    machine_beyond,
    plain_network,
)
from tests.support.plane import opened
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Not an address of anything here; its network is for documentation.
FOREIGN = "203.0.113.7"
# Another machine, to which the host forwards packets.
BEYOND = "198.18.77.1"
RECEIVER = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server, open(sys.argv[1], "w") as said:
    server.bind(("0.0.0.0", 8080))
    print("listening", end="", file=said, flush=True)
    while True:
        print(server.recv(64).decode(), end="", file=said, flush=True)
"""
# Sends two datagrams: one from the given source, and an honest one. The kernel fills in sums.
FORGER = """
import socket, struct, sys
source, target = sys.argv[1:]
data = b"forged"
udp = struct.pack("!HHHH", 8080, 8080, 8 + len(data), 0) + data
ends = socket.inet_aton(source) + socket.inet_aton(target)
head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0, 64, socket.IPPROTO_UDP, 0) + ends
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as forger:
    forger.sendto(head + udp, (target, 0))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as honest:
    honest.sendto(b"honest", (target, 8080))
"""
# Every way to another source that needs no privilege of the container.
UNPRIVILEGED = """
import json, socket, sys
target, foreign = sys.argv[1], "203.0.113.7"
def raw():
    socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
def packet():
    socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
def bound(option):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
        if option is not None:
            forger.setsockopt(socket.IPPROTO_IP, option, 1)
        forger.bind((foreign, 8080))
        forger.sendto(b"forged", (target, 8080))
refused = {}
for name, way in {
    "raw": raw,
    "packet": packet,
    "bound": lambda: bound(None),
    "free": lambda: bound(15),
    "transparent": lambda: bound(19),
}.items():
    try:
        way()
        refused[name] = False
    except OSError:
        refused[name] = True
print(json.dumps(refused))
"""
NAMES = "import socket; print(*(name for _, name in socket.if_nameindex()))"
REACH = "import socket, sys; print(socket.create_connection((sys.argv[1], 8080), 10).recv(5))"


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    with closing(docker.APIClient(version="auto")) as client:
        yield client


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Ready]:
    with closing(Ready(tmp_path)) as ready:
        yield ready


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image) as plane:
        yield plane


def bridge_of(plane: ControlPlane) -> str:
    return f"pdk{(plane.settings.state_dir / 'instance').read_text().strip()}"


def ports(bridge: str) -> set[str]:
    """Those of sandboxes: number 0 is tried by each check."""
    found = os.listdir(f"/sys/class/net/{bridge}/brif")
    return {name for name in found if not name.endswith("0000")}


async def network(plane: ControlPlane, image: str) -> Network:
    """The open network of the control plane, with links of its own."""
    name = (await plane.engine.ensure_open_network(image)).name
    bridge = bridge_of(plane)
    links = Links(bridge)
    with closing(docker.APIClient(version="auto")) as client:
        links.network = links.possible(client.inspect_network(name))
    assert links.serve("runc")
    return Network(name, links, bridge.removeprefix("pdk"))


async def test_a_sandbox_has_an_isolated_port_and_only_ipv4(
    plane: ControlPlane, client: docker.APIClient, ready: Ready
) -> None:
    box = await Box.create(plane, "high")
    facts = client.inspect_container(box.container_id)
    assert facts["HostConfig"]["NetworkMode"] == "none"
    assert box.session.sandbox is not None
    assert box.session.sandbox.own_link is True
    bridge = bridge_of(plane)
    (port,) = ports(bridge)
    brport = Path(f"/sys/class/net/{port}/brport/isolated")
    assert brport.read_text().strip() == "1"
    assert Path(f"/proc/sys/net/ipv4/conf/{bridge}/rp_filter").read_text().strip() == "1"

    eth0 = interface(facts)
    (address,) = eth0["addr_info"]
    shown = client.inspect_network(f"paddock-open-{bridge.removeprefix('pdk')}")
    (pool,) = shown["IPAM"]["Config"]
    assert (address["family"], address["prefixlen"]) == ("inet", int(pool["Subnet"][-2:]))
    names = (
        await box.python("import socket; print(*(n for _, n in socket.if_nameindex()))")
    ).stdout
    assert names.split() == ["lo", "eth0"]
    with machine_beyond(BEYOND, ready):
        assert (await box.python(REACH, BEYOND)).stdout == "b'hello'\n"
    await box.close()
    await until(lambda: not os.path.exists(f"/sys/class/net/{port}"))


@attempt(
    "packets with a source that is not the sandbox's, without a privilege of the container",
    layer="capabilities",
    levels="high",
)
async def test_no_packet_has_another_source(plane: ControlPlane, ready: Ready) -> None:
    box = await Box.create(plane, "high")
    with machine_beyond(BEYOND, ready, RECEIVER):
        refused = (await box.python(UNPRIVILEGED, BEYOND)).value
        assert set(refused.values()) == {True}, refused
        honest = "import socket, sys; s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); "
        await box.python(f"{honest}s.sendto(b'honest', (sys.argv[1], 8080))", BEYOND)
        assert ready.read() == "honest"
    await box.close()


@attempt(
    "packets with a source of another network, by a process that has the privilege to send them",
    layer="reverse path filter",
    levels="high",
)
async def test_packets_of_another_network_go_nowhere(
    plane: ControlPlane, client: docker.APIClient, sandbox_image: str, ready: Ready
) -> None:
    ours = await network(plane, sandbox_image)
    with plain_network(client) as plain, machine_beyond(BEYOND, ready, RECEIVER):
        for place, arrives in ((plain, "forgedhonest"), (ours, "honest")):
            with container(client, sandbox_image, place, capabilities=("NET_RAW",)) as found:
                assert executed(client, found, "python3", "-c", FORGER, FOREIGN, BEYOND) == ""
            arrived = ""
            while not arrived.endswith("honest"):
                arrived += ready.read()
            assert arrived == arrives


async def test_the_engines_network_is_for_links_in_its_upper_half(
    plane: ControlPlane, client: docker.APIClient, sandbox_image: str
) -> None:
    ours = await network(plane, sandbox_image)
    assert ours.links is not None
    assert ours.links.network is not None
    with (
        container(client, sandbox_image, ours) as one,
        container(client, sandbox_image, Network(ours.name)) as other,
    ):
        addresses = [interface(each)["addr_info"][0]["local"] for each in (one, other)]
        lower = ours.links.network.engines
        assert [IPv4Address(each) in lower for each in addresses] == [False, True]


@attempt(
    "another sandbox, where one of both has its link from the engine; and its presence, by ARP",
    layer="isolated ports of the bridge",
    levels="high",
)
async def test_neighbours_are_kept_apart_whoever_links_them(
    plane: ControlPlane, client: docker.APIClient, sandbox_image: str, ready: Ready
) -> None:
    ours = await network(plane, sandbox_image)
    engines = Network(ours.name)
    with plain_network(client) as plain:
        for here, there in ((plain, plain), (ours, engines), (engines, ours), (ours, ours)):
            with (
                greeting(client, sandbox_image, there, ready) as address,
                container(client, sandbox_image, here) as found,
            ):
                said = executed(client, found, "python3", "-c", PROBE, f"{address}:8080")
                assert said.split()[1] == ("open" if here is plain else "closed")
                arp = executed(client, found, "cat", "/proc/net/arp")
                (flags,) = [line.split()[2] for line in arp.splitlines() if address in line.split()]
                if here is plain:
                    assert flags == "0x2", "the test shows nothing"
                if here is there is ours:
                    assert flags == "0x0", "its presence is seen"


async def test_addresses_in_use_are_not_given_again(
    plane: ControlPlane, client: docker.APIClient, sandbox_image: str
) -> None:
    """Also by a control plane that has just started, and after a number was used up."""
    ours = await network(plane, sandbox_image)
    with container(client, sandbox_image, ours) as one:
        later = await network(plane, sandbox_image)
        with container(client, sandbox_image, later) as other:
            addresses = {interface(each)["addr_info"][0]["local"] for each in (one, other)}
            assert len(addresses) == 2
            links = later.links
            assert links is not None
            with pytest.raises(EngineUnavailableError, match="could not be connected"):
                links.connect(other)  # it has a link
            assert interface(other)["addr_info"][0]["local"] in addresses


async def test_a_sandbox_without_its_link_is_not_opened(
    plane: ControlPlane, client: docker.APIClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = await Box.create(plane, "high")  # so that the network is there
    bridge = bridge_of(plane)
    label = {"label": f"paddock.instance={bridge.removeprefix('pdk')}"}
    held = ports(bridge)

    def fail(*_: object) -> None:
        raise OSError("the kernel refuses")

    with monkeypatch.context() as patch:
        patch.setattr(network_link, "_configure", fail)
        with pytest.raises(EngineUnavailableError, match="the kernel refuses"):
            await Box.create(plane, "high")
    assert ports(bridge) == held
    found = client.containers(all=True, filters=label)
    assert box.container_id in {each["Id"] for each in found}
    assert not any(
        LABEL_SANDBOX in each["Labels"] for each in found if each["Id"] != box.container_id
    )
    await box.close()


async def test_a_container_that_was_started_again_has_no_network(
    plane: ControlPlane, client: docker.APIClient, sandbox_image: str
) -> None:
    ours = await network(plane, sandbox_image)
    with container(client, sandbox_image, ours) as found:
        client.restart(found["Id"], timeout=0)
        assert executed(client, found, "python3", "-c", NAMES) == "lo\n"


async def test_a_network_that_somebody_removed_comes_back_to_its_sandboxes(
    plane: ControlPlane, client: docker.APIClient, sandbox_image: str, ready: Ready
) -> None:
    """The engine doesn't know that they use it: `docker network prune` would remove it."""
    box = await Box.create(plane, "high")
    assert box.session.sandbox is not None
    client.remove_network(str(box.session.sandbox.network))
    await plane.engine.ensure_open_network(sandbox_image, renew=True)
    with machine_beyond(BEYOND, ready):
        assert (await box.python(REACH, BEYOND)).stdout == "b'hello'\n"
    (port,) = ports(bridge_of(plane))
    assert Path(f"/sys/class/net/{port}/brport/isolated").read_text().strip() == "1"
    await box.close()


# Asks for the gateway, and tells everybody.
CALLS = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as caller:
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
    for address in (sys.argv[1], sys.argv[2], "255.255.255.255"):
        caller.sendto(b"from the sandbox", (address, int(sys.argv[3])))
"""


@attempt(
    "the host, after somebody has removed the network under a sandbox",
    layer="settings of its port, packet filter",
    levels="high",
)
@pytest.mark.parametrize("layer", ["both", "packet filter"])
async def test_without_its_bridge_a_port_leads_nowhere(
    plane: ControlPlane,
    client: docker.APIClient,
    sandbox_image: str,
    monkeypatch: pytest.MonkeyPatch,
    layer: str,
) -> None:
    """Also if the host has the gateway's address again, as a later network would."""
    if layer == "packet filter":
        monkeypatch.setattr(network_link, "_close", lambda _: None)
    ours = await network(plane, sandbox_image)
    assert ours.links is not None
    assert ours.links.network is not None
    gateway, whole = str(ours.links.network.gateway), ours.links.network.subnet
    with (
        container(client, sandbox_image, ours) as found,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server,
    ):
        server.bind(("0.0.0.0", 0))
        port = server.getsockname()[1]
        client.remove_network(ours.name)
        with address_of_host(gateway):
            calls = (gateway, str(whole.broadcast_address), str(port))
            assert executed(client, found, "python3", "-c", CALLS, *calls) == ""
            server.sendto(b"from the host", ("127.0.0.1", port))
            server.settimeout(PROGRAM_SECONDS)
            assert server.recv(64) == b"from the host"
            said = executed(client, found, "python3", "-c", PROBE, f"{gateway}:{port}")
            assert said.split()[1] == "closed"
            arp = executed(client, found, "cat", "/proc/net/arp").splitlines()
            flags = [line.split()[2] for line in arp if gateway in line.split()]
            assert flags == (["0x0"] if layer == "both" else ["0x2"]), arp
        await plane.engine.ensure_open_network(sandbox_image, renew=True)


async def test_a_network_of_an_earlier_version_stays_while_it_is_used(
    client: docker.APIClient, sandbox_image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine makes the links until then."""
    async with opened(image=sandbox_image) as plane:
        with monkeypatch.context() as patch:
            patch.setattr(docker_links, "_ENGINES", Path("/nowhere"))
            old = await Box.create(plane, "high")
        modes = []
        for ends in (False, True):
            if ends:
                await old.close()
            await plane.engine.ensure_open_network(sandbox_image, renew=True)
            box = await Box.create(plane, "high")
            facts = client.inspect_container(box.container_id)
            modes.append(facts["HostConfig"]["NetworkMode"])
            await box.close()
        assert modes == [f"paddock-open-{bridge_of(plane).removeprefix('pdk')}", "none"]
