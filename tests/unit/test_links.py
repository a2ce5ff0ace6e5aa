"""Which addresses links of ours have, and where they are not made."""

import os
import socket
from ipaddress import IPv4Address, IPv4Interface, IPv4Network
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine import docker_links
from orchestrator.host.engine.docker_links import LinkNetwork, Links, halved, link_network
from orchestrator.host.node import netlink
from orchestrator.host.node.network_link import Wire, make_link


def described(subnet: str, **more: str) -> dict[str, Any]:
    """A network as the engine describes it."""
    gateway = str(IPv4Network(subnet)[1])
    config = {"Subnet": subnet, "Gateway": gateway, **more}
    return {"IPAM": {"Config": [config]}, "Options": {}}


@pytest.mark.parametrize(
    ("subnet", "most", "first", "last"),
    [
        ("172.20.0.0/16", 32766, "172.20.128.1/16", "172.20.255.254/16"),
        ("10.8.0.0/12", 65535, "10.8.0.1/12", "10.8.255.255/12"),
        ("192.168.16.0/20", 2046, "192.168.24.1/20", "192.168.31.254/20"),
        ("10.1.2.0/24", 126, "10.1.2.129/24", "10.1.2.254/24"),
        ("10.1.2.0/29", 2, "10.1.2.5/29", "10.1.2.6/29"),
    ],
)
def test_links_have_the_upper_half(subnet: str, most: int, first: str, last: str) -> None:
    network = link_network(described(str(IPv4Network(subnet, strict=False))))
    assert network is not None
    assert network.most == most
    assert network.address(1) == IPv4Interface(first)
    assert network.address(most) == IPv4Interface(last)
    for number in (1, most):
        address = network.address(number)
        assert address.ip not in network.engines
        assert address.ip != address.network.broadcast_address


def test_the_engine_keeps_to_its_half() -> None:
    network = link_network(described("10.1.2.0/24"))
    assert network is not None
    (pool,) = network.pool["Config"]
    assert (pool["Subnet"], pool["IPRange"]) == ("10.1.2.0/24", "10.1.2.0/25")
    assert pool["Gateway"] == "10.1.2.1"
    assert halved(described("10.1.2.0/24", IPRange="10.1.2.0/25"))
    assert not halved(described("10.1.2.0/24"))
    assert not halved(described("10.1.2.0/24", IPRange="10.1.2.0/24"))
    assert not halved({"IPAM": {"Config": None}, "Options": {}})


@pytest.mark.parametrize(
    "found",
    [
        described("10.1.2.0/31"),
        described("10.1.2.0/30"),
        described("10.1.2.0/24", Gateway="10.1.2.254"),
        described("10.1.2.0/24", Gateway="nowhere"),
        {"IPAM": {"Config": [{"Subnet": "fd00::/64", "Gateway": "fd00::1"}]}, "Options": {}},
        {"IPAM": {"Config": [{"Subnet": "10.1.2.0/24"}]}, "Options": {}},
        {"IPAM": {"Config": []}, "Options": {}},
        {"IPAM": {"Config": None}, "Options": {}},
        {"IPAM": {}, "Options": None},
    ],
)
def test_other_networks_have_no_room(found: dict[str, Any]) -> None:
    assert link_network(found) is None
    assert Links("pdk0a1b2c3d").possible(found) is None


def test_the_networks_mtu_is_the_links() -> None:
    found = described("10.1.2.0/24")
    assert (link_network(found) or pytest.fail("none")).mtu == 1500
    found["Options"] = {"com.docker.network.driver.mtu": "1400"}
    assert (link_network(found) or pytest.fail("none")).mtu == 1400


def test_where_the_engines_host_is_another_none_is_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def tried(_: Wire) -> None:
        pytest.fail("a link was tried")

    monkeypatch.setattr(docker_links, "try_link", tried)
    other = tmp_path / "default"
    other.touch()
    for path in (tmp_path / "none", other, Path("/proc/self/ns/uts")):
        monkeypatch.setattr(docker_links, "_ENGINES", path)
        assert Links("pdk0a1b2c3d").possible(described("10.1.2.0/24")) is None


def test_where_the_kernel_refuses_none_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(wire: Wire) -> None:
        assert wire.name == "pdk0a1b2c3d0000"
        raise PermissionError("no capability")

    monkeypatch.setattr(docker_links, "try_link", refused)
    monkeypatch.setattr(docker_links, "_ENGINES", Path("/proc/self/ns/net"))
    assert Links("pdk0a1b2c3d").possible(described("10.1.2.0/24")) is None


def test_only_runtimes_that_see_later_interfaces_have_them() -> None:
    links = Links("pdk0a1b2c3d")
    assert not links.serve("runc")
    links.network = LinkNetwork(IPv4Network("10.1.2.0/24"), IPv4Address("10.1.2.1"), 1500)
    assert links.serve("runc")
    assert links.serve("crun")
    assert not any(links.serve(name) for name in ("runsc", "kata", "io.containerd.kata.v2", None))


def test_no_sandbox_is_used_without_its_link(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    links = Links("pdk0a1b2c3d")
    container = {"NetworkSettings": {"SandboxKey": str(tmp_path / "gone")}}
    with pytest.raises(EngineUnavailableError, match="removed meanwhile"):
        links.connect(container)
    links.network = LinkNetwork(IPv4Network("10.1.2.0/29"), IPv4Address("10.1.2.1"), 1500)
    with pytest.raises(EngineUnavailableError, match="could not be connected"):
        links.connect(container)
    # Every number is in use.
    (tmp_path / "gone").touch()
    used = [(number, f"pdk0a1b2c3d{number:04x}") for number in (1, 2)]
    monkeypatch.setattr(socket, "if_nameindex", lambda: used)
    with pytest.raises(EngineUnavailableError, match="all its addresses are in use"):
        links.connect(container)


def test_the_hosts_own_namespace_gets_no_link(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(netlink, "make_pair", lambda *_: pytest.fail("it was made"))
    address = IPv4Interface("10.1.2.130/24")
    wire = Wire("pdk0a1b2c3d", "pdk0a1b2c3d0001", address, IPv4Address("10.1.2.1"), 1500)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        with pytest.raises(OSError, match="the host's own"):
            make_link(wire, own)
    finally:
        os.close(own)
