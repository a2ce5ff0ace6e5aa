"""Looks names up in this host's own file of hosts, where its other programs look first."""

import ipaddress
from pathlib import Path

from orchestrator.settings.hosts import Address

_HOSTS = Path("/etc/hosts")
_MOST_BYTES = 1 << 20


def listed_addresses(name: str, path: Path = _HOSTS) -> list[Address]:
    """The addresses of a name in lower case; empty if the file does not have it.

    Only the beginning of a file of more than 1 MiB is read. Raises: OSError if it can't be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
    return addresses_in(text, name)


def addresses_in(text: str, name: str) -> list[Address]:
    """The addresses of a name in lower case, in the text of such a file."""
    found: list[Address] = []
    for line in text.splitlines():
        address, *names = line.partition("#")[0].split() or [""]
        if name not in (each.lower().removesuffix(".") for each in names):
            continue
        try:
            found.append(ipaddress.ip_address(address.partition("%")[0]))
        except ValueError:  # a line that no program reads
            continue
    return found
