"""The run: kill after kill on one state directory, examined after each."""

import asyncio
import os
import random
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

import psutil

from orchestrator.ground.fault_points import FaultPoint
from tests.chaos.dying import VARIABLE
from tests.chaos.examination import examine
from tests.chaos.expected import LIVE, Clients
from tests.chaos.in_cluster import InCluster
from tests.chaos.own_engine import OwnEngine
from tests.chaos.scenarios import SCENARIOS
from tests.support.leaks import (
    NO_WORKSPACES,
    NONE_AHEAD,
    NOTHING,
    engine_client,
    left_behind,
    links,
    made_ahead,
    networks,
    unmount_all,
    workspaces_left,
)
from tests.support.server import Server

Report = Callable[[str], None]

# A storm is killed at a random moment of its first seconds.
_STORM_SECONDS = 1.5
# Sessions that keep the engine busy.
_LOAD = 4
# More than are prepared in a run.
_TEMPLATES = 100
# Descriptors that a control plane opens when it needs them first.
_DESCRIPTORS = 12


# With the survivors and one more session, a control plane for these is full.
_FULL = ("suspend", "restore")
ROOM_FOR_FEW = {"PADDOCK_MAX_ACTIVE": "3"}
# Only as long as there is a template that has sandboxes wait.
WAITING = {"PADDOCK_WARM_SANDBOXES": "1"}


class Kill(NamedTuple):
    """When the control plane is killed: at the n-th visit of a point, or after something else.

    `after` a storm of all operations, ended at a random moment; the kill of an agent; or that of
    the engine while it works.
    """

    point: FaultPoint | None
    visit: int = 1
    after: Literal["storm", "agent", "engine"] = "storm"

    def __str__(self) -> str:
        return self.after if self.point is None else f"{self.point}, visit {self.visit}"

    @property
    def operation(self) -> str:
        """The first word of the point's name, or what was before."""
        return self.after if self.point is None else self.point.partition(".")[0]

    @property
    def settings(self) -> dict[str, str]:
        """What the control plane needs, so that it passes the point."""
        if self.operation == "ahead":
            return WAITING
        return ROOM_FOR_FEW if self.operation in _FULL else {}


@dataclass
class Chaos:
    """The result of a run: kills and starts by operation, and what was wrong."""

    kills: Counter[str] = field(default_factory=Counter)
    missed: list[Kill] = field(default_factory=list)
    slowest_ms: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    def __add__(self, other: "Chaos") -> "Chaos":
        return Chaos(
            self.kills + other.kills,
            self.missed + other.missed,
            self.slowest_ms | other.slowest_ms,
            self.complaints + other.complaints,
        )

    @property
    def lines(self) -> list[str]:
        """A table, without colour."""
        names = sorted(self.kills)
        rows = [(name, str(self.kills[name]), f"{self.slowest_ms[name]} ms") for name in names]
        total = ("all", str(sum(self.kills.values())), f"{max(self.slowest_ms.values())} ms")
        heads = ("operation", "kills", "slowest recovery")
        return [f"{a:<12}{b:>6}  {c:>16}" for a, b, c in (heads, *rows, total)]


async def chaos(
    state_dir: Path,
    kills: Iterable[Kill],
    report: Report,
    chance: random.Random,
    engine: OwnEngine | None = None,
    cluster: InCluster | None = None,
    **settings: str,
) -> Chaos:
    """Kills the control plane at each of these points, and examines what the next start finds.

    With an `engine` of its own, whose networks end with it, all sessions are at low. With a
    `cluster`, it is a node of it.
    """
    done = Chaos()
    if cluster is not None:
        settings.update(cluster.environment)
    levels = ("low", "high") if engine is None else ("low",)
    if engine is not None:
        settings["PADDOCK_DOCKER_HOST"] = engine.url
    async with _server(state_dir, settings) as server:
        clients = Clients(server)
        await _settled(clients, levels[-1])
        before = await asyncio.to_thread(psutil.Process(server.pid).num_fds)
        for level in levels:
            await clients.create(f"survivor-{level}", level)
        await clients.follow()
        for number, kill in enumerate(kills):
            report(f"{number + 1}: {kill}")
            await _kill(clients, kill, number, chance, engine)
            if cluster is not None and await server.died():
                await cluster.contend(clients.sessions)
            if not await _restarted(clients, kill, done):
                await _cleared(clients)
                continue
            found = await examine(clients)
            if cluster is not None:
                found += await cluster.examine(state_dir)
            for complaint in found:
                report(f"{kill}: {complaint}")
                done.complaints.append(f"{kill}: {complaint}")
            await _cleared(clients)
        await _end(clients, done, before)
    return done


@asynccontextmanager
async def _server(state_dir: Path, settings: dict[str, str]) -> AsyncIterator[Server]:
    environment = {
        "PADDOCK_MIN_FREE_MEMORY_BYTES": "0",
        "PADDOCK_MIN_FREE_DISK_BYTES": "0",
        VARIABLE: str(state_dir.with_name("dies-at")),
    }
    environment["PADDOCK_TEMPLATES_DIR"] = str(_templates(state_dir.with_name("templates")))
    server = Server(state_dir, **environment, **settings)
    server.module = "tests.chaos.dying"
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
        unmount_all(state_dir)


def _templates(directory: Path) -> Path:
    """A directory of templates that are all the same, so that there is one to prepare.

    For those whose names begin with w, sandboxes wait.
    """
    directory.mkdir()
    text = 'permission_level = "low"\nfiles = {seen = "seen"}\n'
    text += 'setup = ["mkdir made", "mv seen made/seen"]\n'
    for number in range(_TEMPLATES):
        (directory / f"t{number}.toml").write_text(text)
        (directory / f"w{number}.toml").write_text(f"warm = 1\n{text}")
    return directory


async def _settled(clients: Clients, level: str) -> None:
    """Creates and closes a session, so that what is opened at the first use does not count."""
    await clients.create("first", level)
    await clients.change("first", "DELETE", "?purge=true", status="completed")
    clients.sessions.clear()


async def _kill(
    clients: Clients, kill: Kill, number: int, chance: random.Random, engine: OwnEngine | None
) -> None:
    """Has clients work until it dies."""
    server = clients.server
    if kill.point is None:
        if kill.after == "storm":
            await _storm(clients, number, chance)
        elif kill.after == "agent":
            await _kill_agent(clients, f"agent-{number}")
        elif engine is not None:
            await _kill_engine(clients, number, chance, engine)
        await server.kill()
        return
    scenario, new, idle = SCENARIOS.get(kill.operation), f"new-{number}", f"idle-{number}"
    if kill.operation not in ("create", "start"):
        await clients.create(idle, "high")
    order = Path(server.environment[VARIABLE])
    order.write_text(f"{kill.point} {kill.visit}")
    if scenario is not None:
        await scenario(clients, new, idle)
        return
    await server.kill()
    await clients.parted()
    with suppress(AssertionError):  # it dies before it listens
        await server.start()


async def _storm(clients: Clients, number: int, chance: random.Random) -> None:
    """All scenarios at once, ended at a random moment."""
    names = sorted({scenario.__name__ for scenario in SCENARIOS.values()})
    scenarios = {scenario.__name__: scenario for scenario in SCENARIOS.values()}

    async def one(name: str) -> None:
        idle = f"{name}-{number}"
        if name != "create" and not await clients.create(idle, "high"):
            return
        await scenarios[name](clients, f"new-{name}-{number}", idle)

    work = [asyncio.create_task(one(name)) for name in names]
    await asyncio.wait(work, timeout=chance.uniform(0.1, len(names) * _STORM_SECONDS))
    # Its client stays open until they have noticed.
    os.kill(clients.server.pid, signal.SIGKILL)
    await asyncio.gather(*work)
    await clients.server.kill()


async def _kill_agent(clients: Clients, session: str) -> None:
    """Kills the agent of a session whose command runs; the control plane is killed meanwhile."""
    await clients.create(session, "high")
    path = f"/api/sessions/{session}"
    await clients.call("POST", f"{path}/exec", {"argv": ["sleep", "100"], "background": True})
    _, view = await clients.call("GET", path)
    clients.sessions[session].status = {"aborted"}
    with closing(engine_client()) as client:
        await asyncio.to_thread(client.kill, f"paddock-{view['sandbox']['id']}")


async def _kill_engine(
    clients: Clients, number: int, chance: random.Random, engine: OwnEngine
) -> None:
    """Kills the engine while it creates, freezes and removes sandboxes, and starts it again.

    Its containers go on. What was asked of it meanwhile may have happened, or not.
    """

    async def one(session: str) -> None:
        if not await clients.create(session, "low"):
            return
        await clients.call("POST", f"/api/sessions/{session}/exec", {"argv": ["ls"]})
        await clients.write(session, "file", b"content")
        for path, status in (("/pause", "paused"), ("/resume", "active")):
            await clients.change(session, "POST", path, status=status)
        await clients.change(session, "DELETE", "?purge=true", status="completed")

    work = [asyncio.create_task(one(f"engine-{number}-{each}")) for each in range(_LOAD)]
    await asyncio.wait(work, timeout=chance.uniform(0.1, _LOAD * _STORM_SECONDS))
    await engine.kill()
    await engine.start()
    await asyncio.gather(*work)
    for session, expected in clients.sessions.items():
        if session.startswith("engine"):
            expected.status |= {"active", "paused", "completed", "aborted"}


async def _restarted(clients: Clients, kill: Kill, done: Chaos) -> bool:
    """Starts it again after its death; False if it did not die."""
    server = clients.server
    if kill.point is not None and not await server.died():
        done.missed.append(kill)
        Path(server.environment[VARIABLE]).unlink(missing_ok=True)
        return False
    await server.kill()
    await clients.parted()
    await server.start()
    (recovered,) = (await server.ok("GET", "/api/audit?operation=recovery&limit=1"))["items"]
    name = kill.operation
    done.kills[name] += 1
    done.slowest_ms[name] = max(done.slowest_ms[name], recovered["result"]["recovery_time_ms"])
    await clients.follow()
    return True


async def _cleared(clients: Clients) -> None:
    """Closes the sessions of this turn; a few stay for all turns."""
    for session, expected in list(clients.sessions.items()):
        if session.startswith("survivor"):
            continue
        if expected.status & LIVE or expected.purged != {True}:
            await clients.call("DELETE", f"/api/sessions/{session}?purge=true")
        del clients.sessions[session]


async def _end(clients: Clients, done: Chaos, descriptors: int) -> None:
    """Closes everything: nothing may be left."""
    for session in list(clients.sessions):
        await clients.server.ok("DELETE", f"/api/sessions/{session}?purge=true")
    for volume in (await clients.server.ok("GET", "/api/volumes?limit=1000"))["items"]:
        await clients.server.ok("DELETE", f"/api/volumes/{volume['name']}")
    for snapshot in (await clients.server.ok("GET", "/api/snapshots?limit=1000"))["items"]:
        await clients.server.ok(
            "DELETE", f"/api/snapshots/{snapshot['name']}?key={snapshot['key']}"
        )
    process, state_dir = psutil.Process(clients.server.pid), clients.server.state_dir
    now = await asyncio.to_thread(process.num_fds)
    if now > descriptors + _DESCRIPTORS:
        done.complaints.append(f"{now} descriptors at the end, {descriptors} at the start")
    await clients.server.stop()
    await clients.parted()
    for found, nothing in (
        (left_behind(state_dir), NOTHING),
        (workspaces_left(state_dir), NO_WORKSPACES),
        (made_ahead(state_dir), NONE_AHEAD),
        ({"networks": networks(state_dir)}, {"networks": []}),
        ({"links": links(state_dir)}, {"links": []}),
    ):
        if found != nothing:
            done.complaints.append(f"left at the end: {found}")
