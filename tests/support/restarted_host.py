"""A host that restarts in the middle: what it takes away, and what must be so afterwards.

`python -m tests.support.restarted_host leave` in the folder of a running control plane fills it
with sessions, `check` examines the one that runs after the restart, and removes the sessions.
"""

import json
import os
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

from orchestrator.host.workspace.image_copy import sync
from orchestrator.settings.instance_url import find_url
from orchestrator.settings.settings import Settings, load_settings
from paddock import PaddockSync
from tests.support.leaks import (
    NO_WORKSPACES,
    NOTHING,
    assert_kept_are_whole,
    containers,
    end_sandboxes,
    engine_client,
    left_behind,
    networks,
    unmount_all,
    workspaces_left,
)

# The number of active sessions that suspends the first one.
MAX_ACTIVE = "5"
SUSPENDED, PAUSED, STAGED = "suspended", "paused", "staged"
LEVELS = ("low", "medium", "high")
LOST = (*LEVELS, PAUSED, STAGED)
PROPOSING = {
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": ["**/*"],
        "read_only": False,
        "proposal_mode": True,
    }
}
_RECORD = Path("restarted.json")


def leave(url: str, key: str, state_dir: Path) -> dict[str, Any]:
    """Creates the sessions: one suspended, one at each level, one paused, one that stages.

    Each has a file, and one runs a command. Returns what `check` needs to know.
    """
    with PaddockSync(url, key) as paddock:

        def created(name: str, level: str = "low", **terms: Any) -> None:
            session = paddock.sessions.create(id=name, permission_level=level, **terms)
            session.files.write("kept", name)

        created(SUSPENDED)
        for level in LEVELS:
            created(level, level)
        created(PAUSED)
        created(STAGED, policy=PROPOSING)
        started = paddock.sessions.get("high").processes.start(argv=["sleep", "1000"])
        assert paddock.sessions.inspect(SUSPENDED).activity == "suspended"
        paddock.sessions.pause(PAUSED)
    # The kernel writes files some seconds later, as everywhere; the record is on the disk at once.
    for mount in state_dir.glob("slots/*/fs"):
        sync(mount)
    return {"command": started.command_id, "uids": _uids(state_dir)}


def check(url: str, key: str, state_dir: Path, left: dict[str, Any]) -> None:
    """Sessions have crashed, their workspaces go on under their uids, and nothing else is left."""
    with PaddockSync(url, key) as paddock:
        for name in LOST:
            ended = paddock.sessions.inspect(name)
            assert ended.status == "aborted", ended
            assert ended.termination is not None, ended
            assert ended.termination.rationale_code == "crash", ended
        gaps = paddock.sessions.get("high").audit.events(operation="audit.gap")
        assert [event.args["commands"] for event in gaps] == [[left["command"]]]
        # The one that had no sandbox has lost nothing.
        suspended = paddock.sessions.get(SUSPENDED)
        assert suspended.files.read("kept") == SUSPENDED.encode()
        assert suspended.exec("pwd").stdout == "/workspace\n"
        suspended.close()
        assert left_behind(state_dir) == NOTHING
        assert networks(state_dir) == []

        for name in LOST:
            level = "high" if name == "high" else "low"
            session = paddock.sessions.create(id=name, permission_level=level)
            # What was staged and not committed is not in the workspace.
            there = "" if name == STAGED else "kept\n"
            assert session.exec("ls").stdout == there, name
            if there:
                assert session.files.read("kept") == name.encode()
            assert session.audit.verify().ok
        assert_kept_are_whole(state_dir)
        assert _uids(state_dir) == left["uids"]
        for name in (*LOST, SUSPENDED):
            paddock.sessions.close(name, purge=True)
    assert left_behind(state_dir) == NOTHING
    assert workspaces_left(state_dir) == NO_WORKSPACES


def restart(state_dir: Path, *, containers_gone: bool) -> None:
    """Takes away what a restart would, after the control plane was killed.

    Processes and mounts are gone, and with them the loop devices. Files stay: the database, the
    images of workspaces, sockets and pid files. The engine has its networks, and its containers,
    which have ended; with `containers_gone`, it has lost these.
    """
    if containers_gone:
        end_sandboxes(state_dir)
    else:
        with closing(engine_client()) as client:
            for name in (each.strip("/") for each in containers(state_dir)):
                if client.inspect_container(name)["State"]["Paused"]:
                    client.unpause(name)
                client.kill(name)
                client.wait(name)
    unmount_all(state_dir)


def _uids(state_dir: Path) -> dict[str, int]:
    """The workspaces' uids by the sessions' ids."""
    with closing(sqlite3.connect(state_dir / "paddock.db")) as connection:
        return dict(connection.execute("SELECT id, uid FROM workspaces"))


def _main(settings: Settings, what: str) -> None:
    state_dir = settings.state_dir.resolve()
    url, key = find_url(settings), (state_dir / "admin.key").read_text().strip()
    if what == "leave":
        with _RECORD.open("w", encoding="utf-8") as record:
            json.dump(leave(url, key, state_dir), record)
            record.flush()
            os.fsync(record.fileno())
    else:
        check(url, key, state_dir, json.loads(_RECORD.read_text(encoding="utf-8")))


if __name__ == "__main__":
    _main(load_settings(), sys.argv[1])
