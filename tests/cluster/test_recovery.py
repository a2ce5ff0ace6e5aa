"""A machine that is cut off: its sessions stand still there, go on elsewhere, and end as moved."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orchestrator.rules.policy import levels
from paddock import PaddockSync
from paddock.audit.chain import Chain
from paddock.client.errors import PaddockError, SessionTerminatedError
from scripts.cluster import network
from scripts.cluster.building import Cluster
from scripts.cluster.nodes import Node
from tests.support.limits import PROGRAM_SECONDS
from tests.support.machines import NAMES, client, mend
from tests.support.sources import ROOT

HIGH = Path(levels.__file__).with_name("levels") / "high.toml"
COUNT = "n=0; while true; do n=$((n+1)); echo $n > counter; done"


@pytest.fixture(scope="module")
def surviving(
    made_cluster: Cluster, sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """The cluster with a level that keeps its starts and ends in it, and copies after a second."""
    folder = tmp_path_factory.mktemp("levels")
    text = HIGH.read_text().replace("rank = 300", "rank = 290")
    (folder / "durable.toml").write_text(f'durability = "cluster"\n{text}')
    more = {"PADDOCK_LEVELS_DIR": str(folder), "PADDOCK_CLUSTER_COPY_SECONDS": "1"}
    for node in made_cluster.nodes():
        node.stop()
        Node(node.machine, {**node.settings, **more}).start()
    yield made_cluster
    for node in made_cluster.nodes():
        node.stop()
    mend(made_cluster, sandbox_image)


def wait(condition: Callable[[], object]) -> None:
    """Asks again and again, because other machines tell nothing here."""
    until = time.monotonic() + PROGRAM_SECONDS
    while not condition():
        assert time.monotonic() < until, "it has not happened"
        time.sleep(0.5)


def asked(cluster: Cluster, query: str) -> str:
    return cluster.database.sql(query, "local").strip()


def home(cluster: Cluster, session_id: str) -> str:
    return asked(cluster, f"SELECT node FROM places WHERE id = '{session_id}'")


def copied_record(cluster: Cluster, session_id: str, life: int = 0) -> list[dict[str, object]]:
    """The events that the cluster has of a session, by its command: a verified chain."""
    command = [sys.executable, "-m", "paddock", "cluster", "record", session_id]
    settings = cluster.node("node1").environment()
    names = [each for each in settings if each.startswith("PADDOCK_CLUSTER")]
    env = {"PATH": "/usr/bin:/bin", **{name: settings[name] for name in names}}
    run = [*command, "--life", str(life)]
    lines = subprocess.run(run, cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    chain = Chain()
    for line in lines.stdout.splitlines():
        chain.follow(line)
    assert chain.verdict().ok
    return [json.loads(line) for line in lines.stdout.splitlines()]


def on_disk(node: Node, session_id: str) -> str:
    """The session's counter on that machine, whatever its network does."""
    first = node.machine.first_process()
    assert first is not None
    state = Path(f"/proc/{first.pid}/root{node.machine.directory}/state")
    return (state / "session-workspaces" / session_id / "counter").read_text()


def paused(node: Node) -> bool:
    engine = node.machine.engine()
    try:
        states = {each.attrs["State"]["Status"] for each in engine.containers.list(all=True)}
    finally:
        engine.close()
    return "paused" in states


def test_a_cut_machine_stands_still_and_its_session_goes_on_elsewhere(surviving: Cluster) -> None:
    cluster = surviving
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        session = paddock.sessions.create(
            id="survivor", permission_level="durable", recovery="snapshot"
        )
        lost = cluster.node(home(cluster, "survivor"))
        (other,) = (each for each in cluster.nodes() if each.name != lost.name)
        session.exec(shell="echo kept > file; echo 0 > counter")
        wait(lambda: asked(cluster, "SELECT sum(complete::int) FROM workspace_copies") == "1")
        # It goes on counting, whoever may reach its machine.
        session.processes.start(shell=COUNT)
        wait(lambda: on_disk(lost, "survivor").strip() not in ("", "0"))
        network.cut(cluster.layout, lost.name)
        wait(lambda: paused(lost))
        last = on_disk(lost, "survivor")
        wait(lambda: home(cluster, "survivor") == other.name)
        wait(lambda: _works(paddock, "cat file"))
        session = paddock.sessions.get("survivor")
        assert session.exec("cat counter").stdout == "0\n"
        session.exec(shell="echo again > counter")
        # The other life has not written since it stood still, and never does again.
        assert on_disk(lost, "survivor") == last
        network.heal(cluster.layout, lost.name)
        with client(cluster, lost) as direct:
            wait(lambda: _ended_as_moved(direct))
        assert on_disk(lost, "survivor") == last
        assert session.exec("cat counter").stdout == "again\n"
        assert home(cluster, "survivor") == other.name
        _check_chains(cluster)
        session.close(purge=True)
    wait(lambda: asked(cluster, "SELECT count(*) FROM workspace_copies") == "0")


def _works(paddock: PaddockSync, command: str) -> bool:
    try:
        return paddock.sessions.get("survivor").exec(command).stdout == "kept\n"
    except PaddockError:
        return False


def _ended_as_moved(direct: PaddockSync) -> bool:
    try:
        direct.sessions.get("survivor")
    except SessionTerminatedError as error:
        return error.fields.get("rationale") == "moved"
    except PaddockError:
        pass
    return False


def _check_chains(cluster: Cluster) -> None:
    """The record of the next life begins with the last event that was copied of the one before."""
    wait(lambda: len(copied_record(cluster, "survivor", 1)) > 1)
    earlier, later = (copied_record(cluster, "survivor", life) for life in (1, 0))
    args = later[0]["args"]
    assert isinstance(args, dict)
    named = args["moved_from"]
    assert {"seq": named["event"], "hash": named["hash"]} in [
        {"seq": event["seq"], "hash": event["hash"]} for event in earlier
    ]


def test_starts_and_ends_of_a_durable_level_are_there_without_their_machine(
    surviving: Cluster,
) -> None:
    (gateway,) = surviving.gateways()
    with client(surviving, gateway) as paddock:
        for number in range(3):
            paddock.sessions.create(id=f"durable-{number}", permission_level="durable").close()
    # Nothing but the database is asked.
    for number in range(3):
        found = [event["operation"] for event in copied_record(surviving, f"durable-{number}")]
        assert (found[0], "session.terminated" in found) == ("session.create", True)
    assert NAMES
