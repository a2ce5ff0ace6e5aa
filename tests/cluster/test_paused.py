"""A process of a cluster that is stopped where it is (SIGSTOP), and later goes on."""

import http.client
import json
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from paddock.client.errors import NodeUnavailableError
from scripts.cluster import network
from scripts.cluster.building import Cluster
from scripts.cluster.gateways import Gateway
from scripts.cluster.layout import DATABASE
from scripts.cluster.nodes import Node
from tests.cluster.test_recovery import Story, asked, home, on_disk, wait
from tests.support.limits import PROGRAM_SECONDS
from tests.support.machines import client

_UNANSWERED_SECONDS = 1.0
COUNT = "n=0; while true; do n=$((n+1)); echo $n > counter; done"


def connection_to(part: Node | Gateway) -> http.client.HTTPConnection:
    """A connection on which nothing has been asked."""
    at = urlsplit(part.url)
    connection = http.client.HTTPConnection(at.hostname or "", at.port, timeout=PROGRAM_SECONDS)
    connection.connect()
    return connection


def ask(cluster: Cluster, connection: http.client.HTTPConnection, name: str, shell: str) -> None:
    """Sends a command for a session, and waits for nothing."""
    key = cluster.layout.admin_key.read_text().strip()
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    body = json.dumps({"shell": shell})
    connection.request("POST", f"/api/sessions/{name}/exec", body, headers)


def unanswered(connection: http.client.HTTPConnection) -> bool:
    """Whether nothing comes for a while."""
    assert connection.sock is not None
    connection.sock.settimeout(_UNANSWERED_SECONDS)
    try:
        connection.sock.recv(1, socket.MSG_PEEK)
    except TimeoutError:
        return True
    finally:
        connection.sock.settimeout(PROGRAM_SECONDS)
    return False


def test_what_a_paused_gateway_was_asked_is_done_once_when_it_goes_on(cluster: Cluster) -> None:
    """Its streams go on, too; the nodes answer others meanwhile."""
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        paddock.sessions.create(id="asked", permission_level="high")
        story = Story(paddock, "asked")
        story.wait("session.create")
        with closing(connection_to(gateway)) as connection:
            gateway.pause()
            ask(cluster, connection, "asked", "echo once >> file")
            assert unanswered(connection)
            with client(cluster, cluster.node(home(cluster, "asked"))) as direct:
                direct.sessions.get("asked").exec("touch meanwhile")
            gateway.resume()
            answer = connection.getresponse()
            assert (answer.status, json.load(answer)["exit_code"]) == (200, 0)
        for _ in range(2):
            story.wait("command.exit")
        session = paddock.sessions.get("asked")
        assert session.exec("cat file").stdout == "once\n"
        session.close(purge=True)


def test_a_paused_node_is_said_to_be_away_and_wakes_up_after_its_lease(cluster: Cluster) -> None:
    """What others may take over stood still by itself, and refuses the first request of all."""
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        survives = paddock.sessions.create(
            id="survives", permission_level="high", recovery="snapshot"
        )
        story = Story(paddock, "survives")
        node = cluster.node(home(cluster, "survives"))
        stays = paddock.sessions.create(
            id="stays", permission_level="high", placement={"near": "survives"}
        )
        for session in (survives, stays):
            session.exec(shell="echo 0 > counter")
            session.processes.start(shell=COUNT)
        wait(lambda: int(on_disk(node, "survives").strip() or 0) > 0)
        with closing(connection_to(node)) as connection:
            node.pause()
            ask(cluster, connection, "survives", "touch never")
            with pytest.raises(NodeUnavailableError) as away:
                paddock.sessions.get("stays").exec("pwd")
            assert away.value.fields["node"] == node.name
            assert away.value.retry_after is not None
            over = f"SELECT until < clock_timestamp() FROM nodes WHERE name = '{node.name}'"
            wait(lambda: asked(cluster, over) == "t")
            last, others = on_disk(node, "survives"), on_disk(node, "stays")
            wait(lambda: on_disk(node, "stays") not in ("", others))
            assert on_disk(node, "survives") == last
            # So that it does not get its lease first.
            network.cut(cluster.layout, DATABASE)
            node.resume()
            answer = connection.getresponse()
            assert answer.status == 503
            assert json.load(answer)["code"] == "cluster_unavailable"
            with client(cluster, node) as direct:
                assert direct.sessions.get("stays").exec("pwd").stdout == "/workspace\n"
            assert on_disk(node, "survives") == last
            network.heal(cluster.layout, DATABASE)
        story.wait("session.fenced")
        story.wait("session.unfenced")
        wait(lambda: on_disk(node, "survives") not in ("", last))
        assert "never" not in survives.exec("ls").stdout
        for session in (survives, stays):
            session.close(purge=True)
