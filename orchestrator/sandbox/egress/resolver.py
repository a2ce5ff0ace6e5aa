"""Finds the addresses of a host that is allowed, and keeps those that may be reached."""

import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Protocol

from orchestrator.ground.threads import Threads
from orchestrator.rules.egress.rules import ADDRESS_REFUSED, Decider, Decision
from orchestrator.settings.hosts import Address, Host, plain

# At most this many addresses of one host are tried.
_MOST_ADDRESSES = 4
_THREADS = 16
_LOOKUP_SECONDS = 5.0
# Where other programs of this host look a name up first, and how much of it is read.
_HOSTS_FILE, _MOST_BYTES = Path("/etc/hosts"), 1 << 20

Lookup = Callable[[str], Awaitable[Sequence[Address]]]


class LookupFailedError(Exception):
    """The name has no address, or the name servers do not answer; the message says which."""


class Resolved(NamedTuple):
    """The addresses to connect to, in order, or the decision against one of them."""

    addresses: tuple[Address, ...] = ()
    denied: Decision | None = None


class Resolver(Protocol):
    """Finds addresses."""

    async def find(self, rules: Decider, host: Host, port: int) -> Resolved:
        """The addresses of a host that the rules allow. Raises: LookupFailedError."""

    def decide(self, rules: Decider, address: Address, port: int) -> Decision:
        """About one address of such a host."""


class CheckedResolver:
    """One look-up of a name. If any of its addresses may not be reached, none is used."""

    def __init__(
        self, lookup: Lookup | None = None, is_own: Callable[[Address], bool] | None = None
    ) -> None:
        """`lookup` and `is_own` are for tests; None: those of this host."""
        self._threads = Threads("look-ups of names", _THREADS)
        self._lookup = lookup or self._look_up
        self._is_own = is_own or is_own_address

    async def find(self, rules: Decider, host: Host, port: int) -> Resolved:
        """See `Resolver.find`."""
        found = [host] if not isinstance(host, str) else await self._lookup(host)
        addresses = tuple(dict.fromkeys(plain(address) for address in found))
        for address in addresses:
            decision = self.decide(rules, address, port)
            if not decision.allow:
                return Resolved(denied=decision)
        if not addresses:
            raise LookupFailedError(f"{host} has no address")
        return Resolved(addresses[:_MOST_ADDRESSES])

    def decide(self, rules: Decider, address: Address, port: int) -> Decision:
        """See `Resolver.decide`."""
        decision = rules.decide_address(address, port)
        if decision.allow and self._is_own(address):
            why, remedy = f"{address} is an address of the host", "No rule can allow it."
            return Decision(False, ADDRESS_REFUSED, why, remedy)
        return decision

    async def _look_up(self, name: str) -> list[Address]:
        """Raises: LookupFailedError, TimeoutError."""

        def call() -> list[Address]:
            if listed := listed_addresses(name):
                return listed
            # With the final dot, no search domain is added, but the file of hosts is not read.
            found = socket.getaddrinfo(f"{name}.", None, type=socket.SOCK_STREAM)
            return [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]

        try:
            return await self._threads.call(call, _LOOKUP_SECONDS)
        except (OSError, ValueError) as error:
            if isinstance(error, TimeoutError):
                raise LookupFailedError(f"the look-up of {name} takes too long") from None
            raise LookupFailedError(f"{name} can't be looked up: {error}") from None


def is_own_address(address: Address) -> bool:
    """Whether it is an address of this host: the kernel would then use it as the source, too.

    Nothing is sent.
    """
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with closing(socket.socket(family, socket.SOCK_DGRAM)) as probe:
            probe.connect((str(address), 9))
            source = str(probe.getsockname()[0])
    except OSError:
        return False  # it can't be reached, so it is not here
    return ipaddress.ip_address(source.partition("%")[0]) == address


def listed_addresses(name: str, path: Path = _HOSTS_FILE) -> list[Address]:
    """The addresses that the file of hosts has of a name in lower case.

    Raises: OSError if it can't be read.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return []
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
