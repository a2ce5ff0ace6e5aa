"""Where everything of a cluster on this machine is, and what it is called. Pure but for one file.

All names are derived from the cluster's directory, so that a later command finds what an earlier
one made, even if that was killed before it could write anything down.
"""

import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

MOST_NODES = 20
MOST_GATEWAYS = 9
DATABASE = "database"
DATABASE_PORT = 5432
NODE_PORT = 8700
NODE_TLS_PORT = 8790
GATEWAY_PORT = 8760
# Where a gateway serves ports of sessions: so much further than its own port.
PREVIEWS_FURTHER = 100
# The kernel's limit of the path of a socket, with the zero byte at its end.
_SOCKET_PATH_BYTES = 108


class ClusterError(Exception):
    """What can't be done, why, and what to do, in one line."""


@dataclass(frozen=True)
class Layout:
    """A cluster in `directory`, an absolute path without symbolic links."""

    directory: Path

    @property
    def key(self) -> str:
        """Distinguishes this machine's clusters: 8 hex digits."""
        return hashlib.sha256(os.fsencode(self.directory)).hexdigest()[:8]

    @property
    def switch(self) -> str:
        """The network namespace with the bridge, and the host's link to it."""
        return f"pdc{self.key}"

    @property
    def database_network(self) -> str:
        """The network namespace of the database."""
        return f"{self.switch}-{DATABASE}"

    @property
    def control_group(self) -> str:
        """The parent of all containers' control groups, below the root of each hierarchy."""
        return f"paddock-cluster-{self.key}"

    @property
    def database_directory(self) -> Path:
        """Everything of the database: its user could not enter a checkout of root's home."""
        return Path(f"/var/lib/paddock-cluster-{self.key}")

    @property
    def gateways(self) -> Path:
        """Everything of the gateways."""
        return self.directory / "gateways"

    @property
    def gateway_password(self) -> Path:
        """The database's password for gateways, where their user can read it."""
        return self.database_directory / "gateways-password"

    @property
    def certificates(self) -> Path:
        """The authority and the certificates of nodes and gateways, with their keys."""
        return self.directory / "certificates"

    @property
    def admin_key(self) -> Path:
        """The file with the cluster's admin key; mode 0600."""
        return self.directory / "admin.key"

    @property
    def secrets_key(self) -> Path:
        """The file with the key that seals the cluster's secrets; mode 0600."""
        return self.directory / "secrets.key"

    def node_directory(self, name: str) -> Path:
        """Everything of a node's machine."""
        return self.directory / "nodes" / name

    def socket(self, name: str) -> Path:
        """Where the engine of a node's machine listens, for programs of the host, too."""
        return self.node_directory(name) / "engine.sock"

    def check(self) -> None:
        """Raises: ClusterError if the directory's path is too long for sockets in it."""
        if len(os.fsencode(self.socket(f"node{MOST_NODES}"))) >= _SOCKET_PATH_BYTES:
            raise ClusterError(f"{self.directory} is too long for sockets: choose a shorter one")

    def read(self) -> "Record":
        """What `up` has written down. Raises: ClusterError if there is no cluster."""
        try:
            text = (self.directory / "cluster.json").read_text()
        except FileNotFoundError:
            raise ClusterError(
                f"there is no cluster in {self.directory}: `make cluster` makes one"
            ) from None
        members = json.loads(text)
        return Record(**members)

    def write(self, record: "Record") -> None:
        """Replaces the record. Raises: OSError."""
        new = self.directory / "cluster.json.new"
        new.write_text(json.dumps(asdict(record)) + "\n")
        new.replace(self.directory / "cluster.json")


@dataclass(frozen=True, slots=True)
class Record:
    """What of a cluster is chosen: the rest is derived from its directory.

    `network` is the first three numbers of its addresses, such as `198.18.7`; `image` is the one
    that sandboxes have by default; `port` is the first gateway's.
    """

    network: str
    nodes: int
    image: str
    gateways: int
    port: int

    def with_more(self, wanted: "Record") -> "Record":
        """The same cluster with at least as many nodes and gateways; these keep their ports."""
        return Record(
            self.network,
            max(self.nodes, wanted.nodes),
            wanted.image or self.image,
            max(self.gateways, wanted.gateways),
            self.port if self.gateways else wanted.port,
        )

    @property
    def names(self) -> list[str]:
        """The nodes' names, from `node1` on."""
        return [f"node{number}" for number in range(1, self.nodes + 1)]

    @property
    def ports(self) -> dict[str, int]:
        """The gateways' names, from `gateway1` on, with their ports."""
        return {f"gateway{index + 1}": self.port + index for index in range(self.gateways)}

    @property
    def host(self) -> str:
        """The address of the host's programs, as machines see them."""
        return f"{self.network}.1"

    @property
    def database(self) -> str:
        """The database's address."""
        return f"{self.network}.2"

    def address(self, name: str) -> str:
        """A node's address. Raises: ClusterError if there is no such node."""
        if name not in self.names:
            raise ClusterError(f"there is no {name}: the nodes are {', '.join(self.names)}")
        return f"{self.network}.{10 + int(name.removeprefix('node'))}"

    def url(self, name: str) -> str:
        """Where a node's control plane listens."""
        return f"http://{self.address(name)}:{NODE_PORT}"
