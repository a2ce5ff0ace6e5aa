"""Makes a cluster and starts what of it does not run: network, database, machines, nodes."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import docker
from docker.errors import DockerException, ImageNotFound
from requests.exceptions import RequestException

from scripts.cluster import network, removal
from scripts.cluster.database import Database, programs
from scripts.cluster.layout import DATABASE_PORT, MOST_NODES, ClusterError, Layout, Record
from scripts.cluster.machines import Machine
from scripts.cluster.nodes import Node, make_admin_key

Report = Callable[[str], None]

_NEEDED = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "losetup": "util-linux",
    "ip": "iproute2",
    "dockerd": "docker.io",
}
_SECONDS = 300


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster in its directory; each command looks anew at what there is."""

    layout: Layout

    @property
    def database(self) -> Database:
        """Its PostgreSQL. Raises: ClusterError if there is no cluster."""
        within = network.within(self.layout.database_network)
        address = self.layout.read().database
        return Database(self.layout.database_directory, address, DATABASE_PORT, within)

    def node(self, name: str) -> Node:
        """A node, running or not. Raises: ClusterError if there is none of that name."""
        record = self.layout.read()
        settings = {"PADDOCK_IMAGE": record.image}
        return Node(Machine(self.layout, name, record.address(name)), settings)

    def nodes(self) -> list[Node]:
        """All nodes. Raises: ClusterError if there is no cluster."""
        return [self.node(name) for name in self.layout.read().names]

    def up(self, nodes: int, image: str, report: Report) -> None:
        """Starts everything that does not run, and returns when it is ready.

        With fewer `nodes` than there are, all of them start. Raises: ClusterError, DatabaseError.
        """
        check(nodes, self.layout)
        with self.alone():
            self._record(nodes, image)
            network.make(self.layout, self.layout.read().network)
            make_admin_key(self.node("node1").machine)
            with image_file(image) as (archive, image_id):

                def start_machine(node: Node) -> None:
                    node.machine.start()
                    node.machine.load(archive, image, image_id)
                    report(f"{node.machine.name}: its engine answers, and has {image}")

                machines = [partial(start_machine, node) for node in self.nodes()]
                at_once([partial(self._start_database, report), *machines])
            at_once([partial(self._start_node, report, node) for node in self.nodes()])

    def postgres(self, report: Report) -> None:
        """Starts the database alone. Raises: ClusterError, DatabaseError."""
        check(1, self.layout)
        with self.alone():
            self._record(0, "")
            network.make(self.layout, self.layout.read().network)
            self._start_database(report)

    def down(self) -> None:
        """Removes everything, whatever state it is in. Raises: ClusterError."""
        with self.alone():
            removal.remove(self.layout)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Other commands that change this cluster wait until the context ends."""
        with Path(f"/run/paddock-cluster-{self.layout.key}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _record(self, nodes: int, image: str) -> None:
        """Writes down, before anything is made, what there will be."""
        self.layout.directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            known = self.layout.read()
        except ClusterError:
            with network.free_network() as free:
                # With the network's own address on the host, nobody else chooses it.
                network.make(self.layout, free)
                self.layout.write(Record(free, nodes, image))
        else:
            most = max(known.nodes, nodes)
            self.layout.write(Record(known.network, most, image or known.image))

    def _start_database(self, report: Report) -> None:
        database = self.database
        network.make_database(self.layout, database.host)
        database.make()
        database.start()
        report(f"PostgreSQL answers on {database.host}:{database.port}")

    def _start_node(self, report: Report, node: Node) -> None:
        if node.process() is None:
            node.start()
        report(f"{node.machine.name}: its control plane is ready on {node.url}")


def check(nodes: int, layout: Layout) -> None:
    """Raises: ClusterError if this host can't have such a cluster, with what to do."""
    if not 1 <= nodes <= MOST_NODES:
        raise ClusterError(f"a cluster has 1 to {MOST_NODES} nodes, not {nodes}")
    if os.geteuid() != 0:
        raise ClusterError("namespaces and mounts belong to root: run as root")
    missing = {package for name, package in _NEEDED.items() if shutil.which(name) is None}
    if missing:
        raise ClusterError(f"missing here: install {', '.join(sorted(missing))}")
    if programs() is None:
        raise ClusterError("PostgreSQL is missing: `make postgres` installs it or says how to")
    layout.check()


@contextmanager
def image_file(image: str) -> Iterator[tuple[Path, str]]:
    """An archive of an image of this host's engine, and the image's id. Raises: ClusterError."""
    with tempfile.TemporaryDirectory(prefix="paddock-image-") as directory:
        archive = Path(directory) / "image.tar"
        try:
            with closing(docker.DockerClient(version="auto", timeout=_SECONDS)) as client:
                found = client.images.get(image)
                with archive.open("wb") as file:
                    for chunk in found.save(named=image):
                        file.write(chunk)
        except ImageNotFound:
            raise ClusterError(f"this host's engine has no {image}: `make image`") from None
        except (DockerException, RequestException) as error:
            raise ClusterError(f"this host's engine does not give {image}: {error}") from None
        yield archive, str(found.id)


def at_once(tasks: Iterable[Callable[[], None]]) -> None:
    """Runs them in threads, and waits for all. Raises: the first error."""
    listed = list(tasks)
    with ThreadPoolExecutor(len(listed)) as pool:
        for future in [pool.submit(task) for task in listed]:
            future.result()
