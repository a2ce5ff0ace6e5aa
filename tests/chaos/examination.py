"""What must be true after a kill and the next start; each complaint is one line."""

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from orchestrator.host.engine.base import LABEL_INSTANCE
from tests.chaos.expected import FORKED, Clients, Expected
from tests.chaos.record import examine_record
from tests.chaos.search_index import examine_index
from tests.support.leaks import (
    engine_client,
    instance,
    left_behind,
    links,
    made_ahead,
    networks,
    workspaces_left,
)

_UIDS = 65_536
_LIVE = ("active", "paused")


async def examine(clients: Clients) -> list[str]:
    """The record, the sessions, and the host; leaves every live session active and usable."""
    state_dir = clients.server.state_dir
    seen = set(clients.acknowledged)  # clients hear of later events while the record is read
    found = await asyncio.to_thread(lambda: list(examine_record(state_dir, seen)))
    found += await examine_index(state_dir)
    items = (await clients.server.ok("GET", "/api/sessions?limit=1000"))["items"]
    shown = {item["id"]: item for item in reversed(items)}  # the newest of each id
    for session, expected in list(clients.sessions.items()):
        found += _state(session, expected, shown.get(session))
    slots = await asyncio.to_thread(_slots, state_dir)
    found += [
        f"{session}: its workspace was purged, and is there"
        for session, expected in clients.sessions.items()
        if expected.purged == {True} and session in slots.values()
    ]
    live = {name: item for name, item in shown.items() if item["status"] in _LIVE}
    found += await _forked(clients, live)
    found += [f"{name}: nobody knows it" for name in live if name not in clients.sessions]
    uids = int(clients.server.environment["PADDOCK_UID_BASE"])
    children = [child for item in live.values() for child in await _below(clients, item)]
    found += await asyncio.to_thread(
        lambda: list(_host(state_dir, [*live.values(), *children], uids))
    )
    for item in (*live.values(), *children):
        found += await _spawned(clients, item)
    for session, item in shown.items():
        if session in clients.sessions and _missed(item):
            found += await _refinable(clients, session, clients.sessions[session])
    for session in live:
        found += await _unhalved(clients, session, clients.sessions[session])
        found += await _usable(clients, session, clients.sessions[session])
    return found


async def _forked(clients: Clients, live: dict[str, dict[str, Any]]) -> list[str]:
    """Forks of which no client was told are all there, or none; takes them out and closes them."""
    forks = [
        item
        for name, item in live.items()
        if FORKED in item["labels"] and name not in clients.sessions
    ]
    told = Counter(item["labels"][FORKED] for item in forks)
    for item in forks:
        del live[item["id"]]
        await clients.call("DELETE", f"/api/sessions/{item['id']}?purge=true")
    return [f"{have} of {of} forks are there" for of, have in told.items() if have % int(of)]


def _state(session: str, expected: Expected, shown: dict[str, Any] | None) -> Iterator[str]:
    """Compares a session with what its client was told; then expects it as it is."""
    if shown is None:
        if expected.known and expected.status & set(_LIVE):
            yield f"{session}: it is gone"
        expected.status = {"gone"}
        return
    status, level = shown["status"], shown["permission_level"]
    if status not in expected.status:
        yield f"{session}: is {status}, not {' or '.join(sorted(expected.status))}"
    if level not in expected.level and status in _LIVE:
        yield f"{session}: at level {level}, not {' or '.join(sorted(expected.level))}"
    expected.known, expected.status, expected.level = True, {status}, {level}


def _missed(item: dict[str, Any]) -> bool:
    ended = item["termination"]
    return ended is not None and ended["rationale_code"] == "CONTEXT_MISS"


async def _refinable(clients: Clients, session: str, expected: Expected) -> list[str]:
    """Refines its pack, as a client would whose request was not answered, and uses it."""
    path = f"/api/sessions/{session}"
    _, state = await clients.server.call("GET", f"{path}/consume")
    status, answer = await clients.server.call("POST", f"{path}/refine", {"consume": state["pack"]})
    if status != 201 or not answer["consume"] or not state["pack"]["entries"]:
        return [f"{session}: its pack can't be refined: {status} {answer}"]
    expected.status = {"active"}
    return await _usable(clients, session, expected)


async def _unhalved(clients: Clients, session: str, expected: Expected) -> list[str]:
    """Its workspace is as before or after a commit; its turns are as they were answered."""
    found = []
    if expected.workspaces:
        top = clients.server.state_dir / "session-workspaces" / session
        there = await asyncio.to_thread(_content, top)
        if there not in expected.workspaces:
            found.append(f"{session}: its workspace is neither as before nor as after: {there}")
        expected.workspaces = [there]
    for number, tag in expected.turns.items():
        turn = await clients.server.ok("GET", f"/api/sessions/{session}/turns/{number}")
        if turn["outcome"]["tag"] != tag:
            found.append(f"{session}: turn {number} was {tag}, and is {turn['outcome']}")
    return found


async def _below(clients: Clients, item: dict[str, Any]) -> list[dict[str, Any]]:
    """The live sessions below it."""
    path = f"/api/sessions?parent={item['id']}&status="
    listed = [await clients.server.ok("GET", path + status) for status in _LIVE]
    children = [child for page in listed for child in page["items"]]
    return [*children, *[each for child in children for each in await _below(clients, child)]]


async def _spawned(clients: Clients, item: dict[str, Any]) -> list[str]:
    """Each spawn has one end on record, or a child that lives; what children use counts once."""
    found, session = [], item["id"]
    begun = await _args(clients, session, "session.spawn")
    ended = [each["spawn_id"] for each in await _args(clients, session, "session.spawn_end")]
    if len(ended) != len(set(ended)) or not set(ended) <= {each["spawn_id"] for each in begun}:
        found.append(f"{session}: ends of spawns: {ended}")
    open_ = {each["child_session_id"] for each in begun if each["spawn_id"] not in ended}
    if open_ != set(item["children"]):
        found.append(f"{session}: spawns without an end: {open_}, children: {item['children']}")
    counted, run = item["budget"]["consumed"]["commands"], await _commands(clients, session)
    if begun and counted != run:
        found.append(f"{session}: {counted} commands are counted, {run} were run")
    return found


async def _commands(clients: Clients, session: str) -> int:
    """How many commands were begun in it, and in all that it has spawned."""
    own = len(await _args(clients, session, "command.start"))
    begun = await _args(clients, session, "session.spawn")
    below = [await _commands(clients, each["child_session_id"]) for each in begun]
    return own + sum(below)


async def _args(clients: Clients, session: str, operation: str) -> list[dict[str, Any]]:
    """The arguments of such events on its record; none if it was never created."""
    path = f"/api/sessions/{session}/audit?operation={operation}&limit=500"
    status, answer = await clients.server.call("GET", path)
    return [event["args"] for event in answer["items"]] if status == 200 else []


def _content(top: Path) -> dict[str, bytes]:
    files = (path for path in top.resolve().rglob("*") if path.is_file())
    return {str(path.relative_to(top.resolve())): path.read_bytes() for path in files}


async def _usable(clients: Clients, session: str, expected: Expected) -> list[str]:
    """Resumes it, or sets its level again, as a client would; its files are what they must be."""
    server, path = clients.server, f"/api/sessions/{session}"
    if expected.status == {"paused"}:
        status, answer = await server.call("POST", f"{path}/resume")
        if status != 200:
            return [f"{session}: can't be resumed: {answer}"]
        expected.status = {"active"}
    status, answer = await server.call("POST", f"{path}/exec", {"argv": ["pwd"]})
    if status == 502:
        (level,) = expected.level
        body = {"settings": {"permission_level": level}}
        status, answer = await server.call("PUT", f"{path}/settings", body)
        if status == 200:
            status, answer = await server.call("POST", f"{path}/exec", {"argv": ["pwd"]})
    if status != 200 or answer["exit_code"] != 0:
        return [f"{session}: can't be used: {status} {answer}"]
    clients.acknowledged.add(answer["audit"]["hash"])
    found = []
    for name, contents in expected.files.items():
        content = await clients.read(session, name)
        if content not in contents:
            found.append(f"{session}: {name} has other content than what was written")
        expected.files[name] = {content}
    return found


def _host(state_dir: Path, live: list[dict[str, Any]], uids: int) -> Iterator[str]:
    """Whether everything of this instance on the host belongs to a session or a workspace."""
    running = sorted(item["sandbox"]["id"] for item in live if item["sandbox"] is not None)
    left = left_behind(state_dir)
    found = {
        "containers": (sorted(left["containers"]), [f"/paddock-{name}" for name in running]),
        "sandboxes' directories": (left["directories"], running),
        "sandboxes' mounts": (
            # A sandbox that waited has two at one place: its mount point, and the workspace.
            sorted(set(left["mounts"])),
            sorted(_mounted(state_dir, live)),
        ),
    }
    slots = _slots(state_dir)
    kept = workspaces_left(state_dir)
    found["slots"] = (kept["slots"], sorted(slots))
    found["slots' mounts"] = (
        sorted(kept["mounts"]),
        sorted(f"{state_dir.resolve()}/slots/{slot}/fs" for slot in slots),
    )
    shown = [name for name in slots.values() if not name.startswith("volume:")]
    found["links"] = (sorted(kept["links"]), sorted(shown))
    found["snapshots"] = (_names(state_dir / "snapshots"), _snapshots(state_dir))
    for what, (there, wanted) in found.items():
        if there != wanted:
            yield f"{what}: {_difference(there, wanted)}"
    if (rows := _unfinished(state_dir)) != 0:
        yield f"{rows} snapshots are unfinished"
    if len(kept["loop devices"]) != len(slots):
        yield f"{len(kept['loop devices'])} loop devices of {len(slots)} slots"
    if networks(state_dir) and not any(_has_network(item) for item in live):
        yield "the open network has no session"
    ported = sum(1 for item in live if _has_network(item))
    if len(ports := links(state_dir, ported)) > ported:
        yield f"{ports} for {ported} sessions with the open network"
    yield from _processes(uids, _first_pids(state_dir))
    yield from _drafts(state_dir)


def _has_network(item: dict[str, Any]) -> bool:
    return bool(item["permission_level"] == "high")


def _mounted(state_dir: Path, live: list[dict[str, Any]]) -> Iterator[str]:
    """What sandboxes must have mounted: the workspace, and the volumes of the session."""
    with closing(sqlite3.connect(state_dir / "paddock.db", timeout=30)) as connection:
        volumes = dict(
            connection.execute(
                "SELECT name, slot FROM volumes JOIN workspaces ON id = workspace_id"
            ).fetchall()
        )
    for item in live:
        if item["sandbox"] is not None:
            top = f"{state_dir.resolve()}/sandboxes/{item['sandbox']['id']}"
            yield f"{top}/workspace"
            yield from (f"{top}/volumes/{volumes[use['name']]}" for use in item["volumes"])


def _slots(state_dir: Path) -> dict[str, str]:
    """The ids of workspaces by their slots."""
    with closing(sqlite3.connect(state_dir / "paddock.db", timeout=30)) as connection:
        return dict(connection.execute("SELECT slot, id FROM workspaces").fetchall())


def _unfinished(state_dir: Path) -> int:
    """How many snapshots are not complete, or those of forks."""
    with closing(sqlite3.connect(state_dir / "paddock.db", timeout=30)) as connection:
        statement = "SELECT count(*) FROM snapshots WHERE ready = 0 OR name IS NULL"
        return int(connection.execute(statement).fetchone()[0])


def _names(directory: Path) -> list[str]:
    return sorted(os.listdir(directory)) if directory.exists() else []


def _snapshots(state_dir: Path) -> list[str]:
    """The files of complete named snapshots; no others survive a start."""
    with closing(sqlite3.connect(state_dir / "paddock.db", timeout=30)) as connection:
        rows = connection.execute(
            "SELECT id, layer_bytes FROM snapshots WHERE ready = 1 AND name IS NOT NULL ORDER BY id"
        )
        return [
            f"{snapshot}{kind}"
            for snapshot, layer in rows
            for kind in (".img", *([] if layer is None else [".layer.img"]))
        ]


def _difference(there: list[str], wanted: list[str]) -> str:
    more, less = sorted(set(there) - set(wanted)), sorted(set(wanted) - set(there))
    return ", ".join([*(f"{name} has no owner" for name in more), *(f"no {name}" for name in less)])


def _first_pids(state_dir: Path) -> set[str]:
    """The ids of the instance's containers, as they are in the paths of their control groups."""
    with closing(engine_client()) as client:
        label = f"{LABEL_INSTANCE}={instance(state_dir)}"
        return {found["Id"] for found in client.containers(filters={"label": [label]})}


def _processes(base: int, containers: set[str]) -> Iterator[str]:
    """Processes with a uid of this instance's range that are in none of its containers."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            uid = entry.stat().st_uid
            groups = (entry / "cgroup").read_text() if base <= uid < base + _UIDS else ""
        except OSError:  # it has ended
            continue
        if groups and not any(name in groups for name in containers):
            yield f"process {entry.name} of uid {uid} is in no container"


def _drafts(state_dir: Path) -> Iterator[str]:
    """Files that were being written, in the state directory."""
    made = made_ahead(state_dir)
    yield from (f"prepared/{name} is a draft" for name in made["slots"] if name.endswith(".new"))
    for directory in (state_dir, state_dir / "session-workspaces"):
        for name in os.listdir(directory) if directory.exists() else ():
            if name.startswith("."):
                yield f"{directory.name}/{name} is a draft"
    for slot in (state_dir / "slots").glob("*/*"):
        if slot.name not in ("fs", "workspace.img"):
            yield f"{slot} is a draft"
