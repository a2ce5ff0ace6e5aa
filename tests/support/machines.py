"""A cluster of two nodes and a gateway for tests, made once for each worker that needs it.

Tests import the fixture in their `conftest.py`. It needs root, the engine and PostgreSQL.
"""

import http.client
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from paddock import PaddockSync
from scripts.cluster import network, removal
from scripts.cluster.building import Cluster
from scripts.cluster.database import programs
from scripts.cluster.gateways import Gateway
from scripts.cluster.layout import DATABASE, PREVIEWS_FURTHER, Layout
from scripts.cluster.nodes import Node
from tests.support.limits import PROGRAM_SECONDS

NAMES = ("node1", "node2")


@pytest.fixture(scope="session")
def made_cluster(sandbox_image: str) -> Iterator[Cluster]:
    """Two nodes, a gateway and a database, which all tests of a worker share."""
    if programs() is None:
        pytest.fail("no PostgreSQL here: `make postgres` installs it")
    with place() as layout:
        cluster = Cluster(layout)
        cluster.up(len(NAMES), sandbox_image, lambda _line: None, 1, _free_port())
        yield cluster


@pytest.fixture
def cluster(made_cluster: Cluster, sandbox_image: str) -> Iterator[Cluster]:
    """The shared cluster; afterwards, whatever a test stopped, cut or lost is there again."""
    yield made_cluster
    mend(made_cluster, sandbox_image)


@contextmanager
def place() -> Iterator[Layout]:
    """A place for a cluster, of which nothing is left at the end, whatever was done in it."""
    with tempfile.TemporaryDirectory(prefix="paddock-cluster-") as folder:
        layout = Layout(Path(folder).resolve() / "c")
        try:
            yield layout
        finally:
            Cluster(layout).down()
        assert removal.left(layout) == []


def mend(cluster: Cluster, image: str) -> None:
    """Undoes what tests do to a cluster."""
    cluster.database.resume()
    for part in (*cluster.nodes(), *cluster.gateways()):
        if (process := part.process()) is not None:
            process.resume()
    for plug in (DATABASE, *NAMES):
        network.heal(cluster.layout, plug)
    cluster.up(len(NAMES), image, lambda _line: None, 1)


def client(cluster: Cluster, part: Node | Gateway) -> PaddockSync:
    """A client of one node or gateway with the cluster's admin key; the caller closes it."""
    return PaddockSync(part.url, cluster.layout.admin_key.read_text().strip())


def connected(node: Node, seconds: float = PROGRAM_SECONDS) -> http.client.HTTPConnection:
    """A connection to a node, on which nothing has been asked. Raises: TimeoutError."""
    at = urlsplit(node.url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=seconds)
    connection.connect()
    return connection


def _free_port() -> int:
    """A port of a gateway, whose port for sessions' ports is free, too."""
    while True:
        with socket.socket() as probe, socket.socket() as other:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            with suppress(OSError):
                other.bind(("127.0.0.1", port + PREVIEWS_FURTHER))
                return port
