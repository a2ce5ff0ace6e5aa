"""What must be true after a kill and the next start; each complaint is one line."""

import asyncio
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from orchestrator.audit.verify import verify_all
from orchestrator.engine.base import LABEL_INSTANCE
from tests.chaos.expected import Clients, Expected
from tests.support.leaks import (
    engine_client,
    instance,
    left_behind,
    made_ahead,
    networks,
    workspaces_left,
)

_UIDS = 65_536
_LIVE = ("active", "paused")


async def examine(clients: Clients) -> list[str]:
    """The record, the sessions, and the host; leaves every live session active and usable."""
    state_dir = clients.server.state_dir
    found = await asyncio.to_thread(lambda: list(_record(state_dir, clients.acknowledged)))
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
    found += [f"{name}: nobody knows it" for name in live if name not in clients.sessions]
    uids = int(clients.server.environment["PADDOCK_UID_BASE"])
    found += await asyncio.to_thread(lambda: list(_host(state_dir, list(live.values()), uids)))
    for session, item in shown.items():
        if session in clients.sessions and _missed(item):
            found += await _refinable(clients, session, clients.sessions[session])
    for session in live:
        found += await _usable(clients, session, clients.sessions[session])
    return found


def _record(state_dir: Path, acknowledged: set[str]) -> Iterator[str]:
    """Whether every chain is whole, and has every event of which a client has heard."""
    uri = f"file:{state_dir / 'paddock.db'}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=30)) as connection:
        for key, verdict in verify_all(connection):
            if not verdict.ok:
                yield f"chain {key}: event {verdict.index}: {verdict.reason}"
        kept = {text for (text,) in connection.execute("SELECT hash FROM events")}
        if lost := acknowledged - kept:
            yield f"{len(lost)} acknowledged events are not on record"
        # A number that was used twice would hide another event.
        twice = connection.execute(
            "SELECT count(*) FROM (SELECT 1 FROM events WHERE agent_seq IS NOT NULL"
            " GROUP BY session_key, agent_boot_id, agent_seq HAVING count(*) > 1)"
        ).fetchone()
        if twice[0]:
            yield f"{twice[0]} events of agents are on record twice"
        yield from _ends(connection)
        yield from _misses(connection)


def _ends(connection: sqlite3.Connection) -> Iterator[str]:
    """Whether every command and terminal of an ended session has an end, or a gap names it."""
    for what, begin, end in (("command", "command.start", "command.exit"),):
        unended = connection.execute(
            "SELECT events.session_id, events.command_id FROM events"
            " JOIN sessions ON sessions.key = events.session_key"
            " WHERE events.operation = ? AND events.decision = 'allow'"
            " AND sessions.status NOT IN ('active', 'paused') AND sessions.acknowledged"
            " AND NOT EXISTS (SELECT 1 FROM events AS ends WHERE ends.operation = ?"
            " AND ends.session_key = events.session_key AND ends.command_id = events.command_id)"
            " AND NOT EXISTS (SELECT 1 FROM events AS gaps WHERE gaps.operation = 'audit.gap'"
            " AND gaps.session_key = events.session_key"
            " AND instr(gaps.body, events.command_id))",
            (begin, end),
        ).fetchall()
        for session, command in unended:
            yield f"{session}: {what} {command} has neither an end nor a gap"
    open_terminals = connection.execute(
        "SELECT count(*) FROM terminals WHERE ended_at IS NULL"
    ).fetchone()[0]
    if open_terminals:
        yield f"{open_terminals} terminals have no end"


def _misses(connection: sqlite3.Connection) -> Iterator[str]:
    """Whether each session that missed something has ended because of it, on record in order."""
    operations = ("read", "session.terminated", "coordination.context_refinement_request")
    missed = connection.execute(
        "SELECT DISTINCT sessions.key, sessions.id, termination FROM events"
        " JOIN sessions ON sessions.key = events.session_key"
        " WHERE operation = 'read' AND decision = 'deny'"
    ).fetchall()
    for key, session, termination in missed:
        first = [
            connection.execute(
                "SELECT min(seq), count(*) FROM events WHERE session_key = ? AND operation = ?",
                (key, operation),
            ).fetchone()
            for operation in operations
        ]
        in_order = None not in first and first == sorted(first)
        if "CONTEXT_MISS" not in (termination or "") or not in_order:
            yield f"{session}: its miss has not ended it, or is not on record in order: {first}"
        if any(count != 1 for _, count in first):
            yield f"{session}: its miss is on record more than once, or not: {first}"


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
            sorted(left["mounts"]),
            [f"{state_dir.resolve()}/sandboxes/{name}/workspace" for name in running],
        ),
    }
    slots = _slots(state_dir)
    kept = workspaces_left(state_dir)
    found["slots"] = (kept["slots"], sorted(slots))
    found["slots' mounts"] = (
        sorted(kept["mounts"]),
        sorted(f"{state_dir.resolve()}/slots/{slot}/fs" for slot in slots),
    )
    found["links"] = (sorted(kept["links"]), sorted(slots.values()))
    for what, (there, wanted) in found.items():
        if there != wanted:
            yield f"{what}: {_difference(there, wanted)}"
    if len(kept["loop devices"]) != len(slots):
        yield f"{len(kept['loop devices'])} loop devices of {len(slots)} slots"
    if networks(state_dir) and not any(_has_network(item) for item in live):
        yield "the open network has no session"
    yield from _processes(uids, _first_pids(state_dir))
    yield from _drafts(state_dir)


def _has_network(item: dict[str, Any]) -> bool:
    return bool(item["permission_level"] == "high")


def _slots(state_dir: Path) -> dict[str, str]:
    """The ids of workspaces by their slots."""
    with closing(sqlite3.connect(state_dir / "paddock.db", timeout=30)) as connection:
        return dict(connection.execute("SELECT slot, id FROM workspaces").fetchall())


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
