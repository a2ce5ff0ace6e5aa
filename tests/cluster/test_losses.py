"""A real cluster on this host, part by part lost: what goes on, and what clients are told."""

import pytest

from paddock import PaddockSync
from paddock.client.errors import NodeUnavailableError
from scripts.cluster import network
from scripts.cluster.building import Cluster
from tests.support.machines import NAMES, client


def _home(cluster: Cluster, session_id: str) -> str:
    """The node where the cluster's database has a session."""
    rows = cluster.database.sql(f"SELECT node FROM places WHERE id = '{session_id}'", "local")
    return rows.strip()


def _on_both(cluster: Cluster, paddock: PaddockSync) -> dict[str, str]:
    """A session on each node, made through the gateway, by the node's name."""
    found: dict[str, str] = {}
    for number in range(32):
        session_id = f"lost-{number}"
        paddock.sessions.create(id=session_id, permission_level="low")
        home = _home(cluster, session_id)
        if home in found:
            paddock.sessions.close(session_id, purge=True)
        found.setdefault(home, session_id)
        if len(found) == len(NAMES):
            return found
    raise AssertionError(f"32 sessions are all on {found}")


def _remove(paddock: PaddockSync, sessions: dict[str, str]) -> None:
    for session_id in sessions.values():
        paddock.sessions.close(session_id, purge=True)


def test_sessions_are_put_on_both_nodes_and_used_through_the_gateway(cluster: Cluster) -> None:
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        sessions = _on_both(cluster, paddock)
        for name, session_id in sessions.items():
            session = paddock.sessions.get(session_id)
            session.files.write("where", name)
            with client(cluster, cluster.node(name)) as direct:
                assert direct.sessions.get(session_id).exec("cat where").stdout == name
        _remove(paddock, sessions)


def test_a_killed_gateway_takes_no_session_with_it(cluster: Cluster) -> None:
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        paddock.sessions.create(id="outlives", permission_level="low").exec("touch here")
    gateway.kill()
    gateway.start()
    with client(cluster, gateway) as paddock:
        assert paddock.sessions.get("outlives").exec("ls").stdout == "here\n"
        paddock.sessions.close("outlives", purge=True)


@pytest.mark.parametrize("way", ["cut", pytest.param("kill", marks=pytest.mark.whole)])
def test_a_lost_node_is_said_and_the_other_goes_on(cluster: Cluster, way: str) -> None:
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        sessions = _on_both(cluster, paddock)
        lost = cluster.node("node1")
        if way == "cut":
            network.cut(cluster.layout, "node1")
        else:
            lost.kill()
        with pytest.raises(NodeUnavailableError):
            paddock.sessions.get(sessions["node1"]).exec("pwd")
        assert paddock.sessions.get(sessions["node2"]).exec("pwd").stdout == "/workspace\n"
        if way == "cut":
            network.heal(cluster.layout, "node1")
        else:
            lost.start()
        gateway.stop()
        gateway.start()
        assert paddock.sessions.get(sessions["node1"]).exec("pwd").stdout == "/workspace\n"
        _remove(paddock, sessions)
