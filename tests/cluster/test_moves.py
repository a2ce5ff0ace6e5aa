"""Sessions that move between the nodes of a real cluster: all that they have, and one life."""

import asyncio
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from paddock import PaddockSync
from paddock.client.errors import ConflictError, NotFoundError, PaddockError, SessionTerminatedError
from scripts.cluster import network
from scripts.cluster.building import Cluster
from scripts.cluster.layout import DATABASE
from tests.support.machines import NAMES, client
from tests.support.sources import ROOT
from tests.support.until import until

SECRET = "of-nobody-else-17"
# Adds a line to a file of the workspace for each life that runs it.
COUNT = "echo $(( $(cat counter) + 1 )) > counter; cat counter"


def _home(cluster: Cluster, session_id: str) -> str:
    rows = cluster.database.sql(f"SELECT node FROM places WHERE id = '{session_id}'", "local")
    return rows.strip()


def _other(name: str) -> str:
    return next(each for each in NAMES if each != name)


@contextmanager
def _gateway(cluster: Cluster) -> Iterator[PaddockSync]:
    (gateway,) = cluster.gateways()
    with client(cluster, gateway) as paddock:
        yield paddock


def test_a_session_moves_with_all_that_it_has_and_its_records_are_linked(cluster: Cluster) -> None:
    with _gateway(cluster) as paddock:
        session = paddock.sessions.create(
            id="moves", permission_level="high", secrets={"SECRET_OF_IT": SECRET}
        )
        session.exec(shell="echo 1 > counter; mkdir d; echo text > d/f; chmod 750 d")
        here = _home(cluster, "moves")
        there = _other(here)
        assert paddock.nodes.move("moves", there).node == there
        assert _home(cluster, "moves") == there
        # The handle that the client has, at the gateway that remembers the old node.
        (gateway,) = cluster.gateways()
        with PaddockSync(gateway.url, session.handle) as holder:
            mine = holder.sessions.get("moves")
            assert mine.exec(shell=COUNT).stdout == "2\n"
            assert mine.exec(shell="cat d/f; stat -c %a d; echo ${#SECRET_OF_IT}").stdout == (
                f"text\n750\n{len(SECRET)}\n"
            )
        with (
            client(cluster, cluster.node(here)) as old,
            client(cluster, cluster.node(there)) as new,
        ):
            with pytest.raises(SessionTerminatedError):
                old.sessions.get("moves").exec(shell=COUNT)
            before = old.sessions.audit("moves", incarnation=1)
            after = new.sessions.audit("moves")
            assert before.verify().ok
            assert after.verify().ok
            first = next(iter(after.events())).args["moved_from"]
            last = next(each for each in before.events() if each.seq == first["event"])
            assert (first["node"], first["incarnation"], first["hash"]) == (here, 1, last.hash)
            ends = [each.operation for each in before.events() if each.seq > last.seq]
            assert ends == ["session.moved", "session.terminated"]
        # Back again, to where its files were.
        paddock.nodes.move("moves", here)
        assert paddock.sessions.get("moves").exec(shell=COUNT).stdout == "3\n"
        assert SECRET not in str([each.args for each in paddock.sessions.audit("moves").events()])
        _nothing_left(cluster, "moves", here)
        paddock.sessions.close("moves", purge=True)


def test_what_cannot_move_stays_and_says_why(cluster: Cluster) -> None:
    with _gateway(cluster) as paddock:
        session = paddock.sessions.create(id="stays", permission_level="high")
        here = _home(cluster, "stays")
        with pytest.raises(NotFoundError, match="no node elsewhere"):
            paddock.nodes.move("stays", "elsewhere")
        with pytest.raises(ConflictError, match="already"):
            paddock.nodes.move("stays", here)
        session.processes.start("sleep 600")
        with pytest.raises(PaddockError, match="commands or requests run"):
            paddock.nodes.move("stays", _other(here))
        session.interrupt()
        paddock.nodes.drain(_other(here))
        with pytest.raises(ConflictError, match="takes no sessions"):
            paddock.nodes.move("stays", _other(here))
        paddock.nodes.undrain(_other(here))
        assert session.exec("true").exit_code == 0
        # And with the node that is drained, idle sessions leave.
        drained = paddock.nodes.drain(here, move=True, wait=60).drained
        assert drained is not None
        assert (drained.stayed, _home(cluster, "stays")) == ([], _other(here))
        paddock.nodes.undrain(here)
        # What is busy there until the time is over ends with --end, and says so.
        session.processes.start("sleep 600")
        said = _command(cluster, "drain", _other(here), "--move", "--end", "--json")
        assert json.loads(said) == {"moved": 0, "ended": 1, "stayed": []}
        with pytest.raises(SessionTerminatedError):
            paddock.sessions.get("stays").exec("true")
        paddock.nodes.undrain(_other(here))
        paddock.sessions.close("stays", purge=True)


def _command(cluster: Cluster, *words: str) -> str:
    """What `paddock cluster …` prints, asked of the gateway with an admin's key."""
    (gateway,) = cluster.gateways()
    env = {
        "PATH": "/usr/bin:/bin",
        "PADDOCK_URL": gateway.url,
        "PADDOCK_KEY": cluster.layout.admin_key.read_text().strip(),
    }
    command = [sys.executable, "-m", "paddock", "cluster", *words]
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, check=True
    ).stdout


@pytest.mark.parametrize("lost", ["source", "target", "database"])
def test_a_loss_in_the_middle_leaves_one_life(cluster: Cluster, lost: str) -> None:
    with _gateway(cluster) as paddock:
        session = paddock.sessions.create(id=f"lost-{lost}", permission_level="high")
        session.exec(shell="echo 0 > counter; head -c 30000000 /dev/urandom > bulk")
        here = _home(cluster, session.id)
        parts = {"source": here, "target": _other(here)}
        moving = threading.Thread(target=_move, args=(paddock, session.id, _other(here)))
        moving.start()
        _wait(lambda: _is_moving(cluster, here, session.id) or not moving.is_alive())
        if lost == "database":
            network.cut(cluster.layout, DATABASE)
        else:
            cluster.node(parts[lost]).kill()
        moving.join()
        if lost == "database":
            network.heal(cluster.layout, DATABASE)
        else:
            cluster.node(parts[lost]).start()
        _wait(lambda: _works(paddock, session.id))
        home = _home(cluster, session.id)
        assert paddock.sessions.get(session.id).exec(shell=COUNT).stdout == "1\n"
        with (
            client(cluster, cluster.node(_other(home))) as other,
            pytest.raises((NotFoundError, SessionTerminatedError)),
        ):
            other.sessions.get(session.id).exec(shell=COUNT)
        _nothing_left(cluster, session.id, home)
        paddock.sessions.close(session.id, purge=True)


def _wait(condition: Callable[[], bool]) -> None:
    asyncio.run(until(condition))


def _move(paddock: PaddockSync, session_id: str, node: str) -> None:
    with suppress(PaddockError):
        paddock.nodes.move(session_id, node)


def _is_moving(cluster: Cluster, node: str, session_id: str) -> bool:
    with client(cluster, cluster.node(node)) as direct, suppress(PaddockError):
        events = direct.sessions.audit(session_id).events()
        return any(each.operation == "session.moving" for each in events)
    return False


def _works(paddock: PaddockSync, session_id: str) -> bool:
    with suppress(PaddockError):
        return paddock.sessions.get(session_id).exec("true").exit_code == 0
    return False


def _nothing_left(cluster: Cluster, session_id: str, home: str) -> None:
    """Files on its node only, no row of a move anywhere, and one place that counts once."""
    database = cluster.database

    def settled() -> bool:
        return database.sql("SELECT count(*) FROM moves", "local").strip() == "0" and not any(
            (cluster.node(name).machine.directory / "session-workspaces" / session_id).exists()
            for name in NAMES
            if name != home
        )

    _wait(settled)
    rows = database.sql(
        f"SELECT w.node FROM places p JOIN workspaces w USING (id) WHERE id = '{session_id}'",
        "local",
    )
    assert rows.strip() == home
    used = "SELECT coalesce(sum(sessions), 0) FROM key_usage"
    assert database.sql(used, "local") == database.sql("SELECT count(*) FROM places", "local")
