"""A real cluster on this host, part by part lost: what goes on, and what clients are told."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

import pytest

from paddock import PaddockSync
from paddock.client.errors import ClusterUnavailableError, NodeUnavailableError
from scripts.cluster import network
from scripts.cluster.building import Cluster
from tests.support.machines import NAMES, client
from tests.support.until import until

# Longer than a lease, and than any pause between two tries.
AWAY_SECONDS = 60


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


def test_without_the_database_sessions_go_on_and_none_is_created(cluster: Cluster) -> None:
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        session = paddock.sessions.create(id="goes-on", permission_level="low")
        cluster.database.kill()
        assert session.exec("pwd").stdout == "/workspace\n"
        with pytest.raises(ClusterUnavailableError):
            paddock.sessions.create(id="refused", permission_level="low")
        # An end waits for nothing, and is told when the database is back.
        session.close(purge=True)
        cluster.database.start()
        assert paddock.sessions.create(id="goes-on", permission_level="low").exec("ls").stdout == ""
        paddock.sessions.close("goes-on", purge=True)


@contextmanager
def working(paddock: PaddockSync, session_id: str, said: list[str]) -> Iterator[None]:
    """Runs one command after the other in a session meanwhile, and says each acknowledged id."""
    over, failures = Event(), list[BaseException]()

    def work() -> None:
        session = paddock.sessions.get(session_id)
        try:
            while not over.is_set():
                said.append(session.exec("true").command_id)
        except BaseException as error:
            failures.append(error)

    thread = Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert failures == []


@pytest.mark.whole
def test_a_minute_without_the_database_loses_nothing_under_load(cluster: Cluster) -> None:
    """It answers nothing and keeps its connections, which is worse than to be ended."""
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        sessions = _on_both(cluster, paddock)
        ids: dict[str, list[str]] = {name: [] for name in sessions}
        with (
            working(paddock, sessions["node1"], ids["node1"]),
            working(paddock, sessions["node2"], ids["node2"]),
        ):
            spare = paddock.sessions.create(id="spare", permission_level="low")
            cluster.database.pause()
            before, back = sum(map(len, ids.values())), time.monotonic() + AWAY_SECONDS
            # What stops something does not wait for it.
            spare.close(purge=True)
            while time.monotonic() < back:
                with pytest.raises(ClusterUnavailableError):
                    paddock.sessions.create(id="refused", permission_level="low")
            assert sum(map(len, ids.values())) > before
            cluster.database.resume()
        for name, session_id in sessions.items():
            assert paddock.sessions.audit(session_id).verify().ok
            events = paddock.sessions.audit(session_id).events(operation="command.exec")
            assert {event.args["command_id"] for event in events} >= set(ids[name])
        # All that the nodes had to tell arrives: ids are free, and what the key holds adds up.
        paddock.sessions.create(id="spare", permission_level="low").close(purge=True)
        _remove(paddock, sessions)
        paddock.sessions.create(id="last", permission_level="low").close(purge=True)
        held = "SELECT coalesce(sum(sessions + workspaces + workspace_bytes), 0) FROM key_usage"
        asyncio.run(until(lambda: cluster.database.sql(held, "local").strip() == "0"))
