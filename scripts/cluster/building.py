"""Makes a cluster and starts what of it does not run: database, machines, nodes, gateways."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from scripts.cluster import images, joining, network, removal
from scripts.cluster.composed import Composed
from scripts.cluster.database import Database, programs
from scripts.cluster.gateways import Gateway
from scripts.cluster.kubernetes import Kubernetes
from scripts.cluster.kubernetes import missing as kubernetes_missing
from scripts.cluster.layout import (
    DATABASE,
    DATABASE_PORT,
    GATEWAY_PORT,
    MOST_GATEWAYS,
    MOST_NODES,
    ClusterError,
    Layout,
    Record,
)
from scripts.cluster.machines import Machine
from scripts.cluster.nodes import Node
from scripts.cluster.swarm import Swarm

Report = Callable[[str], None]

_LOCKS = Path("/run/paddock-clusters.lock")
_NEEDED = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "losetup": "util-linux",
    "ip": "iproute2",
    "dockerd": "docker.io",
}


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
        machine = Machine(self.layout, name, record.address(name))
        settings = joining.node_settings(self.layout, record, self.database, name)
        return Node(machine, {"PADDOCK_IMAGE": record.image, **settings})

    def nodes(self) -> list[Node]:
        """All nodes. Raises: ClusterError if there is no cluster."""
        return [self.node(name) for name in self.layout.read().names]

    def gateways(self) -> list[Gateway]:
        """All gateways. Raises: ClusterError if there is no cluster."""
        settings = joining.gateway_settings(self.layout, self.database)
        ports = self.layout.read().ports
        return [Gateway(self.layout, name, port, settings) for name, port in ports.items()]

    def part(self, name: str) -> Node | Gateway | Database:
        """What has this name. Raises: ClusterError if nothing has."""
        if name == DATABASE:
            return self.database
        for gateway in self.gateways():
            if gateway.name == name:
                return gateway
        return self.node(name)

    def up(
        self, nodes: int, image: str, report: Report, gateways: int = 2, port: int = GATEWAY_PORT
    ) -> None:
        """Starts everything that does not run, and returns when it is ready.

        `port` is the first gateway's. What there is more of than is asked for starts, too. Raises:
        ClusterError, DatabaseError.
        """
        check(nodes, gateways, self.layout)
        ids = {image: images.id_of(image)}
        with self.alone():
            self._prepare(Record("", nodes, image, gateways, port), ids, report)
            images.at_once(partial(self._start_node, report, node) for node in self.nodes())
            for gateway in self.gateways():
                gateway.start()
                report(f"{gateway.name} is ready on {gateway.url}")

    def compose(self, nodes: int, image: str, control_plane: str, report: Report) -> Composed:
        """Runs `compose.yaml` with `deploy/compose.yaml` on each machine.

        `control_plane` is the image that these files name. Returns when nodes and gateways are
        ready. Raises: ClusterError, DatabaseError.
        """
        with self._machines(nodes, [image, control_plane], report) as machines:
            made = Composed(self.layout, self.layout.read(), self.database, machines)
            made.deploy()
            for url in made.gateways:
                report(f"a gateway is ready on {url}")
            return made

    def swarm(self, nodes: int, image: str, control_plane: str, report: Report) -> Swarm:
        """Joins the engines of the machines, and runs `deploy/swarm` there with these images.

        Returns when nodes and gateways are ready. Raises: ClusterError, DatabaseError.
        """
        with self._machines(nodes, [image, control_plane], report) as machines:
            swarm = Swarm(self.layout, self.layout.read(), self.database, machines)
            swarm.join()
            report(f"{swarm.manager.name} is the manager of a Swarm of {len(machines)}")
            swarm.deploy(control_plane)
            report("the stack is deployed")
            swarm.wait()
            for url in swarm.gateways:
                report(f"a gateway is ready on {url}")
            return swarm

    def kubernetes(
        self,
        nodes: int,
        image: str,
        control_plane: str,
        report: Report,
        *,
        engines: bool = False,
    ) -> Kubernetes:
        """Starts a Kubernetes of the machines, and runs `deploy/kubernetes` there.

        `control_plane` is the image that its manifests name; with `engines`, sandboxes are in
        engines of pods. Returns when nodes and gateways are ready.
        Raises: ClusterError, DatabaseError.
        """
        if (reason := kubernetes_missing()) is not None:
            raise ClusterError(reason)
        with self._machines(nodes, [image, control_plane], report) as machines:
            made = Kubernetes(self.layout, self.layout.read(), self.database, machines)
            made.start()
            report(f"{len(machines)} kubelets are ready")
            made.deploy(engines=engines)
            report("the manifests are applied")
            made.wait()
            for url in made.gateways:
                report(f"a gateway is ready on {url}")
            return made

    @contextmanager
    def _machines(
        self, nodes: int, names: list[str], report: Report
    ) -> Iterator[dict[str, Machine]]:
        """Machines on which an engine's own manager starts nodes and gateways."""
        check(nodes, 0, self.layout)
        ids = {name: images.id_of(name) for name in names}
        with self.alone():
            self._prepare(Record("", nodes, names[0], 0, GATEWAY_PORT), ids, report)
            if own := [node.name for node in self.nodes() if node.process() is not None]:
                raise ClusterError(f"a control plane runs on {own[0]}: stop it, or `down` first")
            yield {node.name: node.machine for node in self.nodes()}

    def postgres(self, report: Report) -> None:
        """Starts the database alone. Raises: ClusterError, DatabaseError."""
        check(1, 0, self.layout)
        with self.alone():
            self._record(Record("", 0, "", 0, GATEWAY_PORT))
            self._start_database(report)

    def down(self) -> None:
        """Removes everything, whatever state it is in. Raises: ClusterError."""
        with self.alone():
            removal.remove(self.layout)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Other commands that change this cluster wait until the context ends."""
        with _LOCKS.open("a") as locks:
            # A byte for each: a file for each would be left by every cluster that was removed.
            fcntl.lockf(locks, fcntl.LOCK_EX, 1, int(self.layout.key, 16))
            yield

    def _prepare(self, wanted: Record, ids: Mapping[str, str], report: Report) -> None:
        """Everything but control planes and gateways. Raises: ClusterError, DatabaseError."""
        self._record(wanted)
        machines = [node.machine for node in self.nodes()]
        starts = [partial(_start_machine, machine, ids, report) for machine in machines]
        images.at_once([partial(self._start_database, report), *starts])
        images.give(ids, machines)
        report(f"all engines have {', '.join(ids)}")
        joining.prepare(self.layout, self.layout.read(), self.database)
        report("the database has the cluster's tables and keys")

    def _record(self, wanted: Record) -> None:
        """Writes down what there will be, before it is made, and makes the network."""
        self.layout.directory.mkdir(parents=True, exist_ok=True, mode=0o755)
        try:
            record = self.layout.read().with_more(wanted)
        except ClusterError:
            with network.free_network() as free:
                # With the network's own address on the host, nobody else chooses it.
                network.make(self.layout, free)
                record = replace(wanted, network=free)
        self.layout.write(record)
        network.make(self.layout, record.network)

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


def check(nodes: int, gateways: int, layout: Layout) -> None:
    """Raises: ClusterError if this host can't have such a cluster, with what to do."""
    if not 0 <= gateways <= MOST_GATEWAYS:
        raise ClusterError(f"a cluster has at most {MOST_GATEWAYS} gateways here, not {gateways}")
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


def _start_machine(machine: Machine, ids: Mapping[str, str], report: Report) -> None:
    images.begin(machine, ids)
    machine.start()
    report(f"{machine.name}: its engine answers")
