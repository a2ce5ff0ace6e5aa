"""Hosts in one spelling, so that a rule and a request can't mean the same host differently. Pure.

A numeric host is an address, in every form that a C library would accept as one: `127.1`,
`0x7f.1`, `2130706433`. A name is in its ASCII form, in lower case, without a final dot.
"""

import ipaddress
import re

import idna

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Host = str | Address  # a str is a name

_MOST_CHARACTERS = 253
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_MOST_DIGITS = 16  # of one part of an address


class HostError(ValueError):
    """Not a host; the message says why."""


def parse_host(text: str) -> Host:
    """The host in its one spelling. IPv6 addresses may be in brackets. Raises: HostError."""
    if len(text) > _MOST_CHARACTERS + 3:
        raise HostError("the host is too long")
    if text.startswith("[") or ":" in text:
        return _ipv6(text)
    name = _ascii(text).removesuffix(".")
    labels = name.split(".")
    if len(name) > _MOST_CHARACTERS or not all(map(_LABEL.fullmatch, labels)):
        raise HostError("the host is not a name or an address")
    # As in browsers: a name whose last label is a number is an address, or nothing.
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(labels)
    return name


def _ascii(text: str) -> str:
    """Raises: HostError."""
    try:
        name = text.lower() if text.isascii() else idna.uts46_remap(text, std3_rules=False)
        labels = [_label(label) for label in name.split(".")]
    except (idna.IDNAError, UnicodeError):
        raise HostError("the host is not an internationalised name") from None
    return ".".join(labels)


def _label(label: str) -> str:
    """Raises: idna.IDNAError, UnicodeError."""
    if label.startswith("xn--"):
        # Of several encodings of a name, only the one that its Unicode form has is the same.
        return idna.alabel(idna.ulabel(label)).decode()
    return label if label.isascii() else idna.alabel(label).decode()


def _ipv6(text: str) -> Address:
    """The address; an IPv4-mapped one as its IPv4 address. Raises: HostError."""
    inner = text[1:-1] if text.startswith("[") and text.endswith("]") else text
    if "%" in inner:
        raise HostError("an address may not have a zone")
    try:
        address = ipaddress.IPv6Address(inner)
    except ValueError:
        raise HostError("the host is not a name or an address") from None
    return plain(address)


def plain(address: Address) -> Address:
    """The IPv4 address that an IPv6 address maps, otherwise the address itself."""
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _ipv4(labels: list[str]) -> ipaddress.IPv4Address:
    """Reads one to four numbers as inet_aton does; the last one fills the rest.

    Raises: HostError.
    """
    numbers = [_number(label) for label in labels]
    *first, last = numbers
    room = 256 ** (4 - len(first)) if len(first) < 4 else 0
    if any(number > 255 for number in first) or last >= room:
        raise HostError("the host is not an IPv4 address")
    value = last
    for index, number in enumerate(first):
        value += number << (8 * (3 - index))
    return ipaddress.IPv4Address(value)


def _number(text: str) -> int:
    """Raises: HostError."""
    try:
        if len(text) > _MOST_DIGITS or not _NUMBER.fullmatch(text):
            raise ValueError
        if text.startswith("0x"):
            return int(text[2:] or "0", 16)
        return int(text, 8) if text.startswith("0") else int(text)
    except ValueError:
        raise HostError("the host is not an IPv4 address") from None


def authority(host: Host, port: int) -> str:
    """The host and the port as in a URL."""
    name = f"[{host}]" if isinstance(host, ipaddress.IPv6Address) else str(host)
    return f"{name}:{port}"
