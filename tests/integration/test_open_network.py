"""The network of high: containers on its bridge reach neither the host nor link-local addresses.

Every test of isolation is about both kinds of links: ours and the engine's.
"""

import os
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import docker
import pytest
from docker.errors import APIError, NotFound

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine import docker_links, docker_namespaces
from orchestrator.host.engine.docker import DockerEngine
from tests.support.attempts import attempt
from tests.support.free_ports import free_port
from tests.support.limits import PROGRAM_SECONDS
from tests.support.open_networks import (
    Network,
    Ready,
    address_of_host,
    container,
    gateway,
    greeter,
    greeting,
    host_addresses,
    machine_beyond,
    open_network,
    plain_network,
    probe,
)

METADATA = "169.254.169.254"
# A link-local address of another machine: packets to it are forwarded, as in a cloud.
BEYOND = "169.254.77.1"


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


@pytest.fixture
def ready(tmp_path: Path) -> Iterator[Ready]:
    ready = Ready(tmp_path)
    yield ready
    ready.close()


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
    port = free_port()
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
