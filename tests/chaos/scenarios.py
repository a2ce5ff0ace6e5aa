"""How a client brings the control plane to each operation's fault points."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.chaos.expected import FORKED, LIVE, Clients, Expected

# A scenario gets the ids of two sessions that nothing else uses: one to create, and one at high.
Scenario = Callable[[Clients, str, str], Awaitable[object]]


async def create(clients: Clients, new: str, idle: str) -> None:
    """Creates a session."""
    await clients.create(new, "low")


async def link(clients: Clients, new: str, idle: str) -> None:
    """Creates a session with the open network."""
    await clients.create(new, "high")


async def spawn(clients: Clients, new: str, idle: str) -> None:
    """Spawns a child and one below it, both in the parent's workspace, and ends the child."""
    body = {"workspace": "read-only"}
    status, child = await clients.call("POST", f"/api/sessions/{idle}/spawn", body)
    if status == 201:
        path = f"/api/sessions/{child['id']}"
        await clients.call("POST", f"{path}/spawn", body)
        await clients.call("POST", f"{path}/exec", {"argv": ["pwd"]})
        await clients.call("DELETE", path)
    await clients.call("POST", f"/api/sessions/{idle}/spawn", body)


async def execute(clients: Clients, new: str, idle: str) -> None:
    """Runs a command to its end, and one in the background."""
    path = f"/api/sessions/{idle}/exec"
    await clients.call("POST", path, {"argv": ["sh", "-c", "echo one; echo two >&2; exit 3"]})
    await clients.call("POST", path, {"argv": ["sleep", "100"], "background": True})


async def write(clients: Clients, new: str, idle: str) -> None:
    """Replaces a file, twice."""
    for size in (10, 700_000):
        await clients.write(idle, "file", os.urandom(size))


async def open_terminal(clients: Clients, new: str, idle: str) -> None:
    """Opens a tool, uses it and closes it."""
    path = f"/api/sessions/{idle}/ptys"
    status, opened = await clients.call("POST", path, {"tool": "python3"})
    if status == 201:
        line = {"tool": "python3.calculate", "command": "2 + 3"}
        await clients.call("POST", f"{path}/{opened['id']}/interactions", line)
        await clients.call("DELETE", f"{path}/{opened['id']}")


async def change_level(clients: Clients, new: str, idle: str) -> None:
    """Lowers the level while a command runs, and raises it again."""
    path = f"/api/sessions/{idle}/exec"
    await clients.call("POST", path, {"argv": ["sleep", "100"], "background": True})
    for level in ("low", "high"):
        body = {"settings": {"permission_level": level}}
        await clients.change(idle, "PUT", "/settings", body, meanwhile=LIVE, level=level)


async def pause(clients: Clients, new: str, idle: str) -> None:
    """Pauses a session and resumes it."""
    await clients.change(idle, "POST", "/pause", status="paused")
    await clients.change(idle, "POST", "/resume", status="active")


async def suspend(clients: Clients, new: str, idle: str) -> None:
    """Creates a session for which another has to give way, and uses all the others again.

    Only if there is room for no more than the earlier ones.
    """
    others = list(clients.sessions)
    await clients.create(new, "low")
    for session in others:
        await clients.call("POST", f"/api/sessions/{session}/exec", {"argv": ["pwd"]})


async def refine(clients: Clients, new: str, idle: str) -> None:
    """Limits a session to a context pack, has it miss something, and refines the pack twice."""
    files = ["listed", "missed", "missed-too"]
    await clients.write(idle, "listed", b"listed")
    await clients.call("POST", f"/api/sessions/{idle}/exec", {"argv": ["touch", *files]})
    if not await clients.change(idle, "DELETE", "", meanwhile=LIVE, status="completed"):
        return
    body = {"permission_level": "high", "consume": _pack(files[:1])}
    issued = await clients.reissue(idle, "PUT", "", body)
    for more in (1, 2):
        if not issued or not await clients.miss(idle, files[more]):
            return
        body = {"consume": _pack(files[: more + 1])}
        issued = await clients.reissue(idle, "POST", "/refine", body)


def _pack(files: list[str]) -> dict[str, Any]:
    return {
        "entries": [{"path": path} for path in files],
        "tool_allowlist": ["Read", "Execute"],
        "shell_allowlist": ["pwd"],
    }


async def turn(clients: Clients, new: str, idle: str) -> None:
    """Runs two turns, of which the second one fails."""
    listing, noted = {"operation": "world.list"}, {"operation": "assert", "args": {"fact": "one"}}
    missing = {"operation": "world.read", "args": {"ref": "missing"}}
    await clients.turn(idle, [listing, noted])
    await clients.turn(idle, [noted, missing])


# Everything that a program writes is staged.
_STAGES = {
    "world_rules": {
        "read_patterns": ["**/*"],
        "write_patterns": ["**/*"],
        "read_only": False,
        "proposal_mode": True,
    }
}


async def commit(clients: Clients, new: str, idle: str) -> None:
    """Commits new files, then one that replaces another one, one in another place, and none."""
    if not await clients.create(new, "high", policy=_STAGES):
        return
    clients.sessions[new].workspaces = [{}]
    files = {f"d/{number}": b"old\n" for number in range(20)}
    script = "mkdir d; for n in $(seq 0 19); do echo old > d/$n; done"
    if not await _ran(clients, new, script) or not await clients.commit(new, files):
        return
    after = {**files, "d/0": b"new\n", "e/1": b"old\n"}
    del after["d/1"]
    if await _ran(clients, new, "echo new > d/0; mkdir e; cp d/1 e/1; rm d/1"):
        await clients.commit(new, after)


async def rollback(clients: Clients, new: str, idle: str) -> None:
    """Discards new files."""
    if not await clients.create(new, "high", policy=_STAGES):
        return
    expected = clients.sessions[new]
    expected.workspaces = [{}]
    if not await _ran(clients, new, "echo one > one; echo two > two"):
        return
    expected.files = {"one": {b"one\n", None}, "two": {b"two\n", None}}
    status, _ = await clients.call("POST", f"/api/sessions/{new}/proposals/rollback")
    if status == 200:
        expected.files = {"one": {None}, "two": {None}}


async def _ran(clients: Clients, session: str, script: str) -> bool:
    path = f"/api/sessions/{session}/exec"
    status, done = await clients.call("POST", path, {"argv": ["sh", "-c", script]})
    return status == 200 and done["exit_code"] == 0


async def close(clients: Clients, new: str, idle: str) -> None:
    """Closes a session in which a command runs, and purges its workspace."""
    path = f"/api/sessions/{idle}/exec"
    await clients.call("POST", path, {"argv": ["sleep", "100"], "background": True})
    await clients.change(idle, "DELETE", "", meanwhile=LIVE, status="completed")
    await clients.change(idle, "DELETE", "?purge=true", purged=True)


async def volume(clients: Clients, new: str, idle: str) -> None:
    """Creates a volume, and removes it after a session has had it."""
    name = f"of-{new}"
    body = {"name": name, "size_bytes": 16 * 1024 * 1024}
    status, _ = await clients.call("POST", "/api/volumes", body)
    if status != 201:
        return
    if await clients.create(new, "low", volumes=[{"name": name, "path": "/data"}]):
        await clients.change(new, "DELETE", "", meanwhile=LIVE, status="completed")
        await clients.change(new, "DELETE", "?purge=true", purged=True)
    await clients.call("DELETE", f"/api/volumes/{name}")


async def snapshot(clients: Clients, new: str, idle: str) -> None:
    """Takes snapshots of a session that writes, begins another one as the second, removes both."""
    writes = "echo seen > seen; while :; do echo more >> more; sync more; done"
    body: dict[str, Any] = {"argv": ["sh", "-c", writes], "background": True}
    await clients.call("POST", f"/api/sessions/{idle}/exec", body)
    names = [f"{each}-{new}" for each in ("first", "second")]
    for name in names:
        await clients.call("POST", f"/api/sessions/{idle}/snapshots", {"name": name})
    if await clients.create(new, "low", from_snapshot=names[-1]):
        clients.sessions[new].files = {"seen": {b"seen\n"}}
    for name in names:
        await clients.call("DELETE", f"/api/snapshots/{name}")


async def fork(clients: Clients, new: str, idle: str) -> None:
    """Makes three sessions of one, and closes them."""
    if not await clients.create(new, "low", labels={FORKED: "3"}):
        return
    status, forks = await clients.call("POST", f"/api/sessions/{new}/fork", {"count": 3})
    assert status in (0, 201, 502, 503), forks
    ids = [each["id"] for each in forks["sessions"]] if status == 201 else []
    clients.sessions |= {each: Expected(level={"low"}, known=True) for each in ids}
    for each in ids:
        await clients.change(each, "DELETE", "", meanwhile=LIVE, status="completed")
        await clients.change(each, "DELETE", "?purge=true", purged=True)


async def template(clients: Clients, new: str, idle: str) -> None:
    """Begins a session with a template that was never prepared, and another one with the same."""
    name = await _unbuilt(clients, warm=0)
    for session in (new, f"{new}-again"):
        if name is not None:
            await _begin(clients, session, name)


async def ahead(clients: Clients, new: str, idle: str) -> None:
    """Begins sessions with a template for whose sessions sandboxes wait, and removes it.

    A control plane that has any waits until they do. After that none waits.
    """
    name = await _unbuilt(clients, warm=1)
    if name is None:
        return
    await _begin(clients, new, name)
    status, ready = 200, 0 if "PADDOCK_WARM_SANDBOXES" in clients.server.environment else 1
    while status == 200 and not ready:
        status, shown = await clients.call("GET", f"/api/templates/{name}")
        ready = shown.get("ready", 0)
    if status == 200:
        await _begin(clients, f"{new}-again", name)
    Path(clients.server.environment["PADDOCK_TEMPLATES_DIR"], f"{name}.toml").unlink()


async def _unbuilt(clients: Clients, warm: int) -> str | None:
    """A template that was never prepared, with so many sandboxes."""
    status, listed = await clients.call("GET", "/api/templates")
    if status != 200:
        return None
    unbuilt = [each for each in listed["items"] if each["state"] == "unbuilt"]
    return next(str(each["name"]) for each in unbuilt if each["warm"] == warm)


async def _begin(clients: Clients, session: str, template: str) -> None:
    if await clients.create(session, "low", template=template):
        clients.sessions[session].files = {"made/seen": {b"seen"}}


# By the first word of their fault points. A control plane reaches those of `start` by itself.
async def erase(clients: Clients, new: str, idle: str) -> None:
    """Erases the content of an owner who has none."""
    await clients.call("POST", "/api/owners/nobody/erase", {"reason": "chaos"})


SCENARIOS: dict[str, Scenario] = {
    "create": create,
    "link": link,
    "spawn": spawn,
    "exec": execute,
    "file": write,
    "terminal": open_terminal,
    "level": change_level,
    "pause": pause,
    "resume": pause,
    "suspend": suspend,
    "restore": suspend,
    "refine": refine,
    "turn": turn,
    "commit": commit,
    "rollback": rollback,
    "close": close,
    "purge": close,
    "outbox": close,
    "volume": volume,
    "snapshot": snapshot,
    "fork": fork,
    "ahead": ahead,
    "template": template,
    "erase": erase,
}
