"""What the doctor says of the open network on hosts of all kinds, and what it looks at."""

from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.operate.checks.network import (
    UNTRIED,
    NetworkFacts,
    Tried,
    has_default_route,
    has_default_route6,
    network_check,
    network_facts,
)
from tests.support.control_groups import write

USUAL = NetworkFacts(bridge_filter="1", backend=None, ipv4=True, ipv6=True, firewalld=False)
ROUTES = """\
Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0
docker0\t000011AC\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0
"""
ANYWHERE6 = f"{'0' * 32} 00 {'0' * 32} 00"
ROUTES6 = f"""\
fd{"0" * 30} 40 {"0" * 32} 00 {"0" * 32} 00000100 00000001 00000000 00000001     eth0
{ANYWHERE6} fe80{"0" * 27}1 00000400 00000001 00000000 00000003     eth0
"""
# The kernel lists this on every host.
REFUSED6 = f"{ANYWHERE6} {'0' * 32} ffffffff 00000001 00000000 00200200       lo\n"


@pytest.mark.parametrize(
    ("refused", "facts", "status", "words"),
    [
        (None, USUAL, "ok", "kept from the host; the engine links them to it"),
        (None, replace(USUAL, bridge_filter=None, backend="iptables"), "ok", "kept from the host"),
        (None, replace(USUAL, ipv4=False), "warning", "by IPv6 only"),
        (None, replace(USUAL, ipv4=False, ipv6=False), "ok", "kept from the host"),
        (None, replace(USUAL, firewalld=True), "warning", "a reload of firewalld"),
        ("no rules", USUAL, "warning", "no rules"),
    ],
)
def test_the_open_network_is_judged(
    refused: str | None, facts: NetworkFacts, status: str, words: str
) -> None:
    check = network_check(Tried(refused), facts)
    assert (check.name, check.status) == ("open network", status)
    assert words in check.detail
    assert (check.remedy is None) == (status == "ok")


@pytest.mark.parametrize(
    ("facts", "refused", "remedy"),
    [
        (USUAL, "HTTP 500", "needs iptables"),
        (USUAL, "the engine did not make it within 120 s", "PADDOCK_ENGINE_TIMEOUT"),
        (replace(USUAL, bridge_filter=None), "HTTP 500", "`modprobe br_netfilter`"),
        (
            replace(USUAL, bridge_filter="0"),
            "sandboxes could",
            "net.bridge.bridge-nf-call-iptables=1",
        ),
        (replace(USUAL, bridge_filter=None), UNTRIED, "the image's check"),
        (replace(USUAL, backend="nftables"), "no chain", '`"firewall-backend": "iptables"`'),
        (replace(USUAL, backend="nftables+firewalld"), "no chain", "firewall-backend"),
        (replace(USUAL, backend="iptables+firewalld"), "no chain", "needs iptables"),
    ],
)
def test_what_to_do_fits_the_host(facts: NetworkFacts, refused: str, remedy: str) -> None:
    assert remedy in (network_check(Tried(refused), facts).remedy or "")


def test_who_links_sandboxes_is_said() -> None:
    check = network_check(Tried(None, own_links=True), USUAL)
    assert check.ok
    assert "this process links them to it" in check.detail


def test_routes_to_everywhere() -> None:
    assert has_default_route(ROUTES)
    assert not has_default_route(ROUTES.replace("\t0003\t", "\t0002\t"))  # it is down
    assert not has_default_route("\n".join(ROUTES.splitlines()[::2]))
    assert not has_default_route("")
    assert has_default_route6(ROUTES6 + REFUSED6)
    assert not has_default_route6(ROUTES6.splitlines()[0] + "\n" + REFUSED6)
    assert not has_default_route6("")


def test_a_host_is_looked_at(tmp_path: Path) -> None:
    nothing = network_facts(None, tmp_path)
    assert nothing == NetworkFacts(None, None, ipv4=False, ipv6=False, firewalld=False)
    write(tmp_path / "proc/net/route", ROUTES)
    write(tmp_path / "proc/net/ipv6_route", ROUTES6)
    write(tmp_path / "proc/sys/net/bridge/bridge-nf-call-iptables", "0\n")
    units = tmp_path / "run/systemd/units"
    units.mkdir(parents=True)
    facts = network_facts("iptables", tmp_path)
    assert facts == NetworkFacts("0", "iptables", ipv4=True, ipv6=True, firewalld=False)
    # Its target is an id, not a file.
    (units / "invocation:firewalld.service").symlink_to("0123456789abcdef0123456789abcdef")
    assert network_facts("iptables", tmp_path).firewalld
    assert network_facts("nftables+firewalld", tmp_path / "elsewhere").firewalld
