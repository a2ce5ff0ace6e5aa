"""Every spelling of a host is one host, and addresses that are not public are known."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.settings.addresses import special, unlistable
from orchestrator.settings.hosts import HostError, authority, parse_host, plain

ADDRESS = ipaddress.ip_address


@pytest.mark.parametrize(
    ("text", "host"),
    [
        ("Example.ORG", "example.org"),
        ("example.org.", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("example。org", "example.org"),
        ("\uff45xample.org", "example.org"),
        ("_dmarc.example.org", "_dmarc.example.org"),
        ("localhost", "localhost"),
        ("1.2.3.example", "1.2.3.example"),
    ],
)
def test_a_name_has_one_spelling(text: str, host: str) -> None:
    assert parse_host(text) == host


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "127.1",
        "127.0.1",
        "2130706433",
        "0x7f000001",
        "0x7F.0.0.0x1",
        "0177.0.0.01",
        "017700000001",
        "127.0.0.1.",
        "\uff11\uff12\uff17.0.0.1",
        "127。0。0。1",
        "::ffff:127.0.0.1",
        "[::ffff:7f00:1]",
    ],
)
def test_an_address_has_one_spelling(text: str) -> None:
    assert parse_host(text) == ADDRESS("127.0.0.1")


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", "..", "a..b", ".a", "a..", "-a.b", "a-.b", "a b", "a\x00b", "a/b", "a@b"),
        *("%31", "a%2eb", "256.1.1.1", "1.2.3.4.5", "1.2.3.256", "08.1.1.1", "4294967296"),
        *("fe80::1%eth0", "[fe80::1%25eth0]", "[::1", "::1]", "a:b", "[a]"),
        *("a" * 64, ".".join(["abcdefgh"] * 40), "xn--a", "xn--BCHER-kva".lower() + "x--", "*.a"),
        *("\uff19" * 20, "1..1"),
    ],
)
def test_what_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(HostError):
        parse_host(text)


@given(st.text(max_size=80))
def test_a_host_is_read_the_same_again(text: str) -> None:
    try:
        host = parse_host(text)
    except HostError:
        return
    assert parse_host(str(host)) == host
    assert isinstance(host, str) or parse_host(authority(host, 1).rpartition(":")[0]) == host


@given(st.ip_addresses(v=4))
def test_numbers_are_read_as_a_c_library_does(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    a, b, c, d = address.packed
    rest = (b << 16) + (c << 8) + d
    for text in (str(number), hex(number), f"{a}.{rest}", f"0{a:o}.{b:#x}.{(c << 8) + d}"):
        assert parse_host(text) == address


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("169.254.169.254", "link-local"),
        ("100.100.100.200", "metadata"),
        ("168.63.129.16", "metadata"),
        ("fd00:ec2::254", "metadata"),
        ("127.8.9.1", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "unspecified"),
        ("::", "unspecified"),
        ("10.1.2.3", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("fd12::1", "private"),
        ("100.64.0.1", "shared"),
        ("224.0.0.1", "multicast"),
        ("ff02::1", "multicast"),
        ("255.255.255.255", "reserved"),
        ("198.18.0.1", "reserved"),
        ("192.0.0.192", "reserved"),
        ("::ffff:10.0.0.1", "private"),
        ("::10.0.0.1", "reserved"),
        ("64:ff9b::a00:1", "reserved"),
        ("64:ff9b:1::a00:1", "reserved"),
        ("2002:a00:1::", "reserved"),
        ("2001:0:a00:1::", "reserved"),
        ("fe80::1", "link-local"),
        ("fec0::1", "reserved"),
    ],
)
def test_special_addresses_are_known(address: str, kind: str) -> None:
    found = special(ADDRESS(address))
    assert found is not None
    assert found.kind == kind


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111"])
def test_public_addresses_are_not_special(address: str) -> None:
    assert special(ADDRESS(address)) is None


@given(st.ip_addresses())
def test_what_python_calls_local_is_special(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    address = plain(address)
    if address.is_private or address.is_multicast or address.is_reserved or address.is_loopback:
        # These are assigned for services that anybody may reach.
        if address in ipaddress.ip_network("2001:20::/28"):
            return
        assert special(address) is not None


@pytest.mark.parametrize(
    ("network", "kind"),
    [
        ("10.0.0.0/8", None),
        ("192.168.1.1/32", None),
        ("93.184.216.0/24", None),
        ("fd12::/16", None),
        ("2606:4700::/32", None),
        ("0.0.0.0/0", "metadata"),
        ("::/0", "metadata"),
        ("169.254.169.254/32", "link-local"),
        ("127.0.0.0/30", "loopback"),
        ("64:ff9b::/96", "reserved"),
        ("fd00::/8", "metadata"),
    ],
)
def test_some_networks_can_t_be_listed(network: str, kind: str | None) -> None:
    assert unlistable(ipaddress.ip_network(network)) == kind
