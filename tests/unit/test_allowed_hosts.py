"""The `Host` headers that are accepted."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.ground.errors import MisdirectedRequestError
from orchestrator.settings.allowed_hosts import AllowedHosts, host_name


def answers(hosts: AllowedHosts, *headers: str) -> bool:
    try:
        hosts.check(headers)
    except MisdirectedRequestError:
        return False
    return True


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.8.8.8", "::1", "localhost"])
def test_a_loopback_address_is_answered_by_its_names(listen: str) -> None:
    hosts = AllowedHosts(listen)
    for header in ("localhost", "LocalHost.:8700", "127.0.0.1:1", "[::1]", "[0:0::1]:8700"):
        assert answers(hosts, header), header
    for header in ("rebound.example", "localhost.example", "192.168.1.5", "127.0.0.1.example"):
        assert not answers(hosts, header), header


def test_one_address_is_answered_by_itself_and_the_list() -> None:
    hosts = AllowedHosts("10.0.0.5", ["Paddock.example.org", "[fd00::1]"])
    for header in ("10.0.0.5:8700", "paddock.example.org", "paddock.EXAMPLE.org:443", "[FD00::1]"):
        assert answers(hosts, header), header
    for header in ("localhost", "127.0.0.1", "10.0.0.6", "a.paddock.example.org", "example.org"):
        assert not answers(hosts, header), header


@pytest.mark.parametrize("listen", ["0.0.0.0", "::"])
def test_all_interfaces_are_answered_by_any_address(listen: str) -> None:
    hosts = AllowedHosts(listen)
    for header in ("localhost:8700", "192.168.1.5:8700", "[2001:db8::7]:8700"):
        assert answers(hosts, header), header
    # Other spellings that browsers and resolvers take for an address are not accepted.
    for header in ("rebound.example", "192.168.1.5.example", "0x7f.1", "127.1", "2130706433"):
        assert not answers(hosts, header), header


@pytest.mark.parametrize(
    "headers",
    [
        (),
        ("localhost", "localhost"),
        ("localhost", "rebound.example"),
        ("",),
        (" ",),
        ("localhost:port",),
        ("localhost:8700:8700",),
        ("user@localhost",),
        ("localhost/",),
        ("localhost, rebound.example",),
        ("::1",),
        ("[::1",),
        ("[::1%lo]",),
        ("[localhost]",),
        ("locälhost",),
        ("localhost\n",),
        ("a" * 256,),
    ],
)
def test_malformed_headers_are_refused(headers: tuple[str, ...]) -> None:
    assert not answers(AllowedHosts("127.0.0.1"), *headers)


@given(st.text() | st.from_regex(r"[\[\]:.a-fA-F0-9%]*"))
def test_any_header_is_decided(header: str) -> None:
    hosts = AllowedHosts("0.0.0.0")
    if answers(hosts, header):
        name = host_name(header)
        assert name == "localhost" or str(ipaddress.ip_address(name)) == name
