"""A machine that is cut off: its sessions stand still there, go on elsewhere, and end as moved."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orchestrator.rules.policy import levels
from paddock import PaddockSync
from paddock.audit.chain import Chain
from paddock.client.errors import SessionTerminatedError
from scripts.cluster import network
from scripts.cluster.building import Cluster
from scripts.cluster.nodes import Node
from scripts.cluster.removal import end_machines
from tests.support.machines import NAMES, client, mend
from tests.support.sources import ROOT
from tests.support.until import until

HIGH = Path(levels.__file__).with_name("levels") / "high.toml"
BULK = "head -c 100000 /dev/urandom > bulk"
COUNT = "n=0; while true; do n=$((n+1)); echo $n > counter; done"


@pytest.fixture(scope="module")
def more(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Settings of each node: a level that keeps its starts and ends in the cluster, soon copies."""
    folder = tmp_path_factory.mktemp("levels")
    text = HIGH.read_text().replace("rank = 300", "rank = 290")
    (folder / "durable.toml").write_text(f'durability = "cluster"\n{text}')
    return {"PADDOCK_LEVELS_DIR": str(folder), "PADDOCK_CLUSTER_COPY_SECONDS": "1"}


@pytest.fixture(scope="module")
def surviving(made_cluster: Cluster, sandbox_image: str, more: dict[str, str]) -> Iterator[Cluster]:
    """The cluster with these settings."""
    for node in made_cluster.nodes():
        node.stop()
        _start(node, more)
    yield made_cluster
    for node in made_cluster.nodes():
        node.stop()
    mend(made_cluster, sandbox_image)


def _start(node: Node, more: dict[str, str]) -> None:
    Node(node.machine, {**node.settings, **more}).start()


class Story:
    """What the gateway's stream says of one session, in its order."""

    def __init__(self, paddock: PaddockSync, session_id: str) -> None:
        self._events = (
            event for event in paddock.events(after=0) if event.session_id == session_id
        )

    def wait(self, operation: str) -> None:
        """Reads on until this has happened."""
        assert any(event.operation == operation for event in self._events)


def wait(condition: Callable[[], bool]) -> None:
    """For what the database or a disk has, which tell nobody."""
    asyncio.run(until(condition))


def asked(cluster: Cluster, query: str) -> str:
    return cluster.database.sql(query, "local").strip()


def home(cluster: Cluster, session_id: str) -> str:
    return asked(cluster, f"SELECT node FROM places WHERE id = '{session_id}'")


def copied_record(cluster: Cluster, session_id: str, life: int = 0) -> list[dict[str, Any]]:
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


@contextmanager
def pauses(node: Node) -> Iterator[Iterator[object]]:
    """The pauses of containers on that machine, as its engine tells them."""
    engine = node.machine.engine()
    told = engine.events(decode=True, filters={"event": "pause"})
    try:
        yield told
    finally:
        told.close()
        engine.close()


def cut_off(cluster: Cluster, lost: Node) -> None:
    with pauses(lost) as told:
        network.cut(cluster.layout, lost.name)
        next(told)


def cut_off_and_killed(cluster: Cluster, lost: Node) -> None:
    network.cut(cluster.layout, lost.name)
    lost.kill()


def cut_off_and_stopped(cluster: Cluster, lost: Node) -> None:
    network.cut(cluster.layout, lost.name)
    lost.pause()


def _copied(cluster: Cluster, session_id: str) -> bool:
    """Whether the copy is there that has all of its files, and no earlier one."""
    of_it = f"FROM workspace_copies WHERE id = '{session_id}'"
    return asked(cluster, f"SELECT sum(bytes) {of_it} AND complete HAVING min(bytes) > 90000") != ""


@pytest.mark.parametrize(
    "lose",
    [
        cut_off,
        pytest.param(cut_off_and_killed, marks=pytest.mark.whole),
        pytest.param(cut_off_and_stopped, marks=pytest.mark.whole),
    ],
)
def test_a_cut_machine_stands_still_and_its_session_goes_on_elsewhere(
    surviving: Cluster, more: dict[str, str], lose: Callable[[Cluster, Node], None]
) -> None:
    """Also if nobody there can freeze it any more: its control plane is killed, or hangs."""
    cluster, name = surviving, lose.__name__
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        session = paddock.sessions.create(id=name, permission_level="durable", recovery="snapshot")
        story = Story(paddock, name)
        lost = cluster.node(home(cluster, name))
        (other,) = (each for each in cluster.nodes() if each.name != lost.name)
        session.exec(shell=f"echo kept > file; echo 0 > counter; {BULK}")
        wait(lambda: _copied(cluster, name))
        # It goes on counting, whoever may reach its machine.
        session.processes.start(shell=COUNT)
        wait(lambda: on_disk(lost, name).strip() not in ("", "0"))
        lose(cluster, lost)
        story.wait("session.arrived")
        last = on_disk(lost, name)
        assert home(cluster, name) == other.name
        session = paddock.sessions.get(name)
        assert session.exec("cat file counter").stdout == "kept\n0\n"
        session.exec(shell="echo again > counter")
        # The other life has not written since it stood still, and never does again.
        assert on_disk(lost, name) == last
        network.heal(cluster.layout, lost.name)
        if (process := lost.process()) is None:
            _start(lost, more)
        else:
            process.resume()
        story.wait("session.terminated")
        with client(cluster, lost) as direct, pytest.raises(SessionTerminatedError) as ended:
            direct.sessions.get(name)
        assert ended.value.fields["rationale"] == "moved"
        assert on_disk(lost, name) == last
        assert session.exec("cat counter").stdout == "again\n"
        assert home(cluster, name) == other.name
        _check_chains(cluster, name)
        session.close(purge=True)
    wait(lambda: asked(cluster, "SELECT count(*) FROM workspace_copies") == "0")


def _check_chains(cluster: Cluster, name: str) -> None:
    """The record of the next life begins with the last event that was copied of the one before."""
    wait(lambda: len(copied_record(cluster, name, 1)) > 1)
    earlier, later = (copied_record(cluster, name, life) for life in (1, 0))
    args = later[0]["args"]
    assert isinstance(args, dict)
    named = args["moved_from"]
    assert {"seq": named["event"], "hash": named["hash"]} in [
        {"seq": event["seq"], "hash": event["hash"]} for event in earlier
    ]


@pytest.mark.whole
def test_what_was_acknowledged_of_a_durable_level_survives_the_disk_of_its_machine(
    surviving: Cluster, sandbox_image: str
) -> None:
    """Every command of a session that has ended is in a verified chain without its machine."""
    cluster, commands = surviving, dict[str, list[str]]()
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        for name in ("durable-0", "durable-1", "durable-2"):
            with paddock.sessions.create(id=name, permission_level="durable") as session:
                commands[name] = [session.exec("true").command_id for _ in range(3)]
            lost = cluster.node(asked(cluster, f"SELECT node FROM records WHERE id = '{name}'"))
    state = lost.machine.directory / "state"
    end_machines(cluster.layout, lost.machine.directory)
    kept = state.rename(state.with_name("gone"))  # for whom it is lost, it is deleted
    try:
        for name, ids in commands.items():
            events = copied_record(cluster, name)
            assert events[0]["operation"] == "session.create"
            assert "session.terminated" in [event["operation"] for event in events]
            begun = [each["args"] for each in events if each["operation"] == "command.start"]
            assert [args["command_id"] for args in begun] == ids
    finally:
        kept.rename(state)
        cluster.up(len(NAMES), sandbox_image, lambda _line: None, 1)
