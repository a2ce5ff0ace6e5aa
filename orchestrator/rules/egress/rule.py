"""One rule of the way out: the hosts and requests that it covers. Pure."""

from dataclasses import dataclass

from orchestrator.rules.egress.outgoing_request import UNKNOWN, Glob, Requested
from orchestrator.settings.addresses import Network
from orchestrator.settings.hosts import Address, Host, plain


@dataclass(frozen=True, slots=True)
class Rule:
    """Hosts or addresses at certain ports.

    Either `host` is set, which is a name, or `*.name` for all names below it; or `network` is.
    Without `ports`, `methods`, `paths` or `programs`, it covers all of them. `inspect`: TLS to the
    host is read. `upgrade`: `http://` requests to the host go out in TLS.
    """

    host: str | None = None
    network: Network | None = None
    ports: tuple[int, ...] = ()
    methods: tuple[str, ...] = ()
    paths: tuple[Glob, ...] = ()
    inspect: bool = False
    upgrade: bool = False
    programs: tuple[str, ...] = ()

    @property
    def partial(self) -> bool:
        """Whether it covers only some requests to its hosts."""
        return bool(self.methods or self.paths)

    def allows(self, requested: Requested) -> bool:
        """Whether it allows this request to one of its hosts."""
        if not self.partial:
            return True
        return requested.plain is not None and self._covers(requested.method, requested.plain)

    def denies(self, requested: Requested) -> bool:
        """Whether it denies this request, or one that the request could be read as."""
        if not self.partial:
            return True
        return requested.plain is None or self._covers(requested.method, requested.plain)

    def _covers(self, method: str, plain: str) -> bool:
        if self.methods and method not in self.methods:
            return False
        return not self.paths or any(glob.matches(plain) for glob in self.paths)

    def allows_by(self, program: str) -> bool:
        """Whether it allows requests of that program."""
        return not self.programs or program in self.programs

    def denies_by(self, program: str) -> bool:
        """Whether it denies requests of that program; an unknown one could be any."""
        return self.allows_by(program) or program == UNKNOWN

    def matches(self, host: Host, port: int) -> bool:
        """Whether it covers this host at this port. An address matches only networks."""
        if self.ports and port not in self.ports:
            return False
        if not isinstance(host, str):
            return self.contains(host)
        if self.host is None:
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:])
        return host == self.host

    def contains(self, address: Address) -> bool:
        """Whether it lists the address."""
        network, address = self.network, plain(address)
        return network is not None and network.version == address.version and address in network

    @property
    def cidr(self) -> str | None:
        """The network as text."""
        return None if self.network is None else str(self.network)

    def __str__(self) -> str:
        """Its name in events and answers."""
        ports = "" if not self.ports else ":" + ",".join(map(str, self.ports))
        by = f"by {','.join(self.programs)}" if self.programs else ""
        parts = [f"{self.host or self.network}{ports}", ",".join(self.methods), *self.paths, by]
        return " ".join(str(part) for part in parts if part)
