"""The name servers that sandboxes use."""

import pytest

from orchestrator.settings.resolvers import check_resolver, resolv_conf, usable

HOSTS = """\
# made by something
search corp.example
options ndots:1
nameserver 10.0.0.2
nameserver\t10.0.0.3
nameserver 10.0.0.2
nameserver fe80::1%eth0
nameserver 2001:db8::1
nameserver 127.0.0.53
nameserver
nameserver 10.0.0
; nameserver 10.0.0.9
nameserver 10.0.0.4
nameserver 10.0.0.5
"""


def test_of_a_hosts_file_those_that_can_be_asked_are_taken() -> None:
    assert usable(HOSTS) == ("10.0.0.2", "10.0.0.3", "10.0.0.4")
    assert usable("nameserver 127.0.0.1\n") == ()
    assert usable("") == ()


def test_the_file_of_a_sandbox_names_them_and_nothing_else() -> None:
    assert resolv_conf(("10.0.0.2", "10.0.0.3")) == "nameserver 10.0.0.2\nnameserver 10.0.0.3\n"
    assert usable(resolv_conf(())) == ()


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.0.11", "0.0.0.0", "224.0.0.251", "255.255.255.255", "::1", "2001:db8::1"),
        *("1.1.1", "01.1.1.1", "dns.example", "", "1.1.1.1:53", "1.1.1.1 ", "1.1.1.1/32", "-j"),
    ],
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be"):
        check_resolver(text)


def test_link_local_and_private_ones_may_be_named() -> None:
    assert check_resolver("169.254.169.253") == "169.254.169.253"
    assert check_resolver("10.0.0.2") == "10.0.0.2"
