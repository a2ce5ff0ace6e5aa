"""Machines on one host: apart from each other, cut, lost, and gone without a trace."""

import asyncio
import secrets
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import docker
import pytest

from paddock import PaddockSync
from scripts.cluster import network, removal
from scripts.cluster.__main__ import main
from scripts.cluster.building import Cluster
from scripts.cluster.joining import CLUSTER
from scripts.cluster.layout import ClusterError
from scripts.cluster.nodes import Node
from tests.support.limits import PROGRAM_SECONDS
from tests.support.machines import NAMES, client, connected, place
from tests.support.owned import holding
from tests.support.sources import ROOT
from tests.support.until import until

# What is unplugged or stopped never answers, however long one waits.
_UNANSWERED_SECONDS = 1.0


def _containers(engine: docker.DockerClient) -> set[str]:
    with closing(engine):
        return {str(container.name) for container in engine.containers.list(all=True)}


def _asks(node: Node, path: str = "/healthz") -> int:
    """The status of one request."""
    with closing(connected(node)) as connection:
        connection.request("GET", path)
        return connection.getresponse().status


def test_each_machine_has_its_own_engine_and_users(cluster: Cluster) -> None:
    users, seen = {}, {}
    for name in NAMES:
        node = cluster.node(name)
        with client(cluster, node) as paddock:
            session = paddock.sessions.create(id=f"apart-{name}", permission_level="high")
            assert session.exec("hostname").exit_code == 0
            users[name] = int(session.exec("id -u").stdout)
            seen[name] = _containers(node.machine.engine())
            session.close(purge=True)
    assert seen["node1"]
    assert seen["node2"]
    assert not seen["node1"] & seen["node2"]
    assert not (seen["node1"] | seen["node2"]) & _containers(docker.from_env())
    # The kernel counts processes by user, on all machines together.
    assert abs(users["node1"] - users["node2"]) >= 65_536


def _holding(cluster: Cluster, word: str) -> set[str]:
    """Where the word is: names of nodes, by all bytes of their states, and the database."""
    states = {name: cluster.node(name).machine.directory / "state" for name in NAMES}
    found = {name for name, state in states.items() if any(holding(state, word))}
    return found | ({"database"} if word in cluster.database.dump(CLUSTER) else set())


def test_an_owner_is_erased_through_a_gateway_on_all_machines(cluster: Cluster) -> None:
    word = f"c4n4ry{secrets.token_hex(8)}"
    with client(cluster, cluster.gateways()[0]) as admin:
        key = admin.keys.create("leaves").key
        try:
            for name in NAMES:
                with PaddockSync(cluster.node(name).url, key) as paddock:
                    session = paddock.sessions.create(
                        id=f"leaves-{name}", permission_level="high", labels={"is": word}
                    )
                    assert session.exec(shell=f"echo {word} | tee kept.txt").exit_code == 0
                    session.close()
            live = "SELECT count(*) FROM records WHERE owner = 'leaves' AND ended_at IS NULL"
            asyncio.run(until(lambda: cluster.database.sql(live, CLUSTER).strip() == "0"))
            assert _holding(cluster, word) == {*NAMES, "database"}
            made = admin.owners.export("leaves")
            assert ([each.node for each in made.files], made.missing) == ([*NAMES], [])
            done = admin.owners.erase("leaves", reason="asked for by letter")
            assert (done.sessions, done.missing) == (2, [])
            assert _holding(cluster, word) == set()
            for name in NAMES:
                path = f"/api/sessions/leaves-{name}/audit/verify"
                assert admin.request("GET", path)["ok"]
        finally:
            admin.keys.revoke("leaves")


@pytest.mark.whole
def test_users_of_another_machine_are_refused(cluster: Cluster) -> None:
    one, two = cluster.node("node1"), cluster.node("node2")
    with client(cluster, one) as paddock:
        session = paddock.sessions.create(id="taken", permission_level="high")
        taken = session.exec("id -u").stdout.strip()
        session.close(purge=True)
    claims = Node(two.machine, {**two.settings, "PADDOCK_UID_BASE": taken})
    with pytest.raises(ClusterError, match="ended with exit status"):
        claims.start()
    log = (two.machine.directory / "state/paddock.log").read_text()
    assert f"another control plane on this machine uses some of the uids {taken}" in log


def test_a_cut_node_is_silent_until_it_is_healed(cluster: Cluster) -> None:
    node = cluster.node("node1")
    with closing(connected(node, _UNANSWERED_SECONDS)) as connection:
        network.cut(cluster.layout, "node1")
        connection.request("GET", "/healthz")
        with pytest.raises(TimeoutError):
            connection.getresponse()
        with pytest.raises((TimeoutError, OSError)):
            connected(node, _UNANSWERED_SECONDS)
        assert _asks(cluster.node("node2")) == 200
        network.heal(cluster.layout, "node1")
    assert _asks(node) == 200


def test_machines_reach_the_database_until_it_is_cut(cluster: Cluster) -> None:
    database = cluster.database
    dial = (
        "import socket, sys; "
        f"socket.create_connection(('{database.host}', {database.port}), float(sys.argv[1]))"
    )
    machine = cluster.node("node2").machine

    def dials(seconds: float) -> int:
        run = [sys.executable, "-c", dial, str(seconds)]
        return machine.run(run, {}, PROGRAM_SECONDS).returncode

    assert dials(PROGRAM_SECONDS) == 0
    network.cut(cluster.layout, "database")
    assert dials(_UNANSWERED_SECONDS) == 1
    network.heal(cluster.layout, "database")
    assert dials(PROGRAM_SECONDS) == 0


@pytest.mark.whole
def test_a_paused_node_answers_when_it_goes_on(cluster: Cluster) -> None:
    node = cluster.node("node2")
    node.pause()
    with closing(connected(node)) as connection:
        connection.request("GET", "/healthz")
        assert connection.sock is not None
        connection.sock.settimeout(_UNANSWERED_SECONDS)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1, socket.MSG_PEEK)
        node.resume()
        connection.sock.settimeout(PROGRAM_SECONDS)
        assert connection.getresponse().status == 200


def test_sandboxes_outlive_a_killed_control_plane_and_end_with_their_machine(
    cluster: Cluster, sandbox_image: str
) -> None:
    node = cluster.node("node1")
    with client(cluster, node) as paddock:
        for name in ("kept", "frozen"):
            paddock.sessions.create(id=name, permission_level="low").exec("touch here")
        paddock.sessions.pause("frozen")
    node.kill()
    node.start()
    with client(cluster, node) as paddock:
        assert paddock.sessions.get("kept").exec("ls").stdout == "here\n"

    removal.end_machines(cluster.layout, node.machine.directory)
    assert node.process() is None
    assert _asks(cluster.node("node2")) == 200
    cluster.up(len(NAMES), sandbox_image, lambda _line: None, 1)
    with client(cluster, node) as paddock:
        ended = paddock.sessions.inspect("kept")
        assert ended.termination is not None
        assert ended.termination.rationale_code == "crash"
        again = paddock.sessions.create(id="kept", permission_level="low")
        assert again.exec("ls").stdout == "here\n"
        for name in ("kept", "frozen"):
            paddock.sessions.close(name, purge=True)


@pytest.mark.whole
def test_commands_change_one_part_and_say_so(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["-C", str(cluster.layout.directory)]

    def says(*words: str) -> str:
        status = main([*where, *words])
        said = capsys.readouterr().out
        assert status == 0, said
        return said

    assert says("cut", "node1") == "==> node1: cut: done\n"
    with pytest.raises(OSError, match="timed out"):
        connected(cluster.node("node1"), _UNANSWERED_SECONDS)
    says("heal", "node1")
    assert _asks(cluster.node("node1")) == 200
    for part in ("node2", "gateway1", "database"):
        says("kill", part)
        assert f"{part} " in says("where")
    assert says("where").count("(does not run)") == 3
    for part in ("database", "node2", "gateway1"):
        says("start", part)
        says("pause", part)
        says("resume", part)
    assert "(does not run)" not in says("where")
    assert str(cluster.layout.admin_key) in says("where")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cut", "node9"], "there is no node9: the nodes are node1, node2"),
        (["kill", "gateway7"], "there is no gateway7"),
        (["up", "0"], "a cluster has 1 to 20 nodes, not 0"),
        (
            ["up", "--image", "no/such:image"],
            "this host's engine has no no/such:image: `make image`",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["-C", str(cluster.layout.directory), *words]) == 1
    out = capsys.readouterr().out
    assert out.startswith(f"error: {said}")
    assert out.count("\n") == 1


def test_where_nothing_is_this_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["where"], ["heal", "node1"], ["start", "database"]):
        assert main(["-C", str(tmp_path / "none"), *words]) == 1
        assert "`make cluster` makes one" in capsys.readouterr().out
    assert main(["-C", str(tmp_path / "none"), "down"]) == 0
    assert main(["-C", f"/tmp/{'long' * 30}", "up"]) == 1
    assert "too long for sockets" in capsys.readouterr().out


@pytest.mark.whole
def test_whatever_was_killed_is_continued_or_removed(sandbox_image: str) -> None:
    """A command that is killed at each of its steps; the next one finds what it left."""
    with place() as layout:
        run = [sys.executable, "-m", "scripts.cluster", "--directory", str(layout.directory)]
        up = [*run, "up", "1", "--gateways", "0", "--image", sandbox_image]
        for line in ("PostgreSQL answers", "its engine answers", "all engines have"):
            with subprocess.Popen(up, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
                assert process.stdout is not None
                assert any(line in said for said in process.stdout)
                process.kill()
        assert layout.directory.exists()
        for _ in range(2):
            done = subprocess.run([*run, "down"], cwd=ROOT, check=True, timeout=PROGRAM_SECONDS)
            assert done.returncode == 0
            assert removal.left(layout) == []
