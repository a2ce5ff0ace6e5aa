"""Two control planes, of which one is lost at a step of a session's move: the session has one life.

A node is killed, stops until its lease has ended, is given up while it stops, or loses its link.
"""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

import aiohttp
import psutil

from orchestrator.cluster.certificates import issue
from orchestrator.cluster.postgres.nodes import NodeAdmin
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.fault_points import FaultPoint
from tests.chaos.dying import VARIABLE
from tests.chaos.run import Report
from tests.support.cluster_store import (
    CLUSTER,
    StoreNode,
    claim,
    joined,
    make_schema,
    opened,
)
from tests.support.cutter import Cutter, cutting
from tests.support.free_ports import free_port
from tests.support.leaks import end_sandboxes, unmount_all
from tests.support.limits import PROGRAM_SECONDS, WAIT_SECONDS
from tests.support.postgres import running
from tests.support.server import Server
from tests.support.until import pause, until

SOURCE, TARGET, RIVAL = "node-1", "node-2", "rival"
# A line for each life that has run it.
_COUNT = ["sh", "-c", "echo life >> lives; wc -l < lives"]
_DATABASE = "moving"
# Answers of a node that does not know yet, or does not serve yet.
_LATER = (429, 502, 503)
_PAUSE_SECONDS = 0.1
# More than a node needs to renew its lease, to join again and to compare its sessions.
_HEARS_SECONDS = 60.0
Way = Literal["kill", "stop", "forget", "cut"]


class Loss(NamedTuple):
    """What happens to the node that passes the point; `drains`: the move is a drain's."""

    point: FaultPoint
    way: Way
    drains: bool = False

    def __str__(self) -> str:
        return f"{self.way} at {self.point}{' of a drain' if self.drains else ''}"

    @property
    def name(self) -> str:
        """Of the node."""
        return TARGET if self.point.startswith("arrive") else SOURCE

    @property
    def creates(self) -> bool:
        """Whether the point is one of a creation, and not of a move."""
        return self.point.startswith("create")


def losses(ways: Iterable[Way] = ("kill", "stop", "forget", "cut")) -> list[Loss]:
    """Each step of a move in each way, and each of a claim with its node given up meanwhile."""
    steps = [point for point in FaultPoint if point.partition(".")[0] in ("arrive", "leave")]
    steps.remove(FaultPoint.ARRIVE_FORGOTTEN)  # follows a loss, and no move passes it
    found = [Loss(point, way) for way in ways for point in steps]
    if "kill" in ways:
        found += [Loss(point, "kill", drains=True) for point in steps]
    claims = FaultPoint.CREATE_CLAIMED, FaultPoint.CREATE_RECORDED
    return found + [Loss(point, way) for way in ("stop", "forget") if way in ways
                    for point in claims]  # fmt: skip


@dataclass
class Moving:
    """Both nodes, their link, and what the cluster's database says."""

    servers: dict[str, Server]
    link: Cutter
    database: ClusterDatabase
    rival: StoreNode

    async def lose(self, loss: Loss, number: int) -> list[str]:
        """Has that happen in the middle; returns what is wrong afterwards."""
        session, source, lost = f"move-{number}", self.servers[SOURCE], self.servers[loss.name]
        made = {"id": session, "permission_level": "high"}
        if not loss.creates:
            await self._create(made)
            assert await self._lives(SOURCE, session) == 1
        order = Path(lost.environment[VARIABLE])
        order.write_text(f"{loss.point} 1 {'KILL' if loss.way == 'kill' else 'STOP'}")
        asked: tuple[str, Any] = (f"/api/sessions/{session}/move", {"node": TARGET})
        if loss.creates:
            asked = "/api/sessions", made
        elif loss.drains:
            asked = f"/api/nodes/{SOURCE}/drain", {"move": True}
        asking = asyncio.create_task(_tried(source, *asked))
        await until(lambda: not order.exists() or asking.done())
        if order.exists():
            order.unlink()
            return [f"not reached: {asking.result()}"]
        taken = await self._happens(loss, lost, session)
        await asking
        if loss.way == "cut":
            await self.link.listen()
        return await self._examined(session, taken, created=not loss.creates)

    async def _create(self, body: dict[str, str]) -> None:
        """A node that was given up before takes sessions once it has joined again."""
        async with asyncio.timeout(PROGRAM_SECONDS):
            while True:
                status, answer = await self.servers[SOURCE].call("POST", "/api/sessions", body)
                if status not in _LATER:
                    break
                await asyncio.sleep(_PAUSE_SECONDS)
        assert status == 201, answer

    async def _happens(self, loss: Loss, lost: Server, session: str) -> bool:
        """Returns whether the rival has the session's id now."""
        if loss.way == "kill":
            assert await lost.died()
            await lost.kill()
            await lost.start()
            return False
        await until(lambda: psutil.Process(lost.pid).status() == psutil.STATUS_STOPPED)
        taken = False
        if loss.way == "cut":
            await self.link.refuse()
        else:
            await self._end_lease(loss.name)
            if loss.way == "forget":
                await NodeAdmin(self.database).forget(loss.name)
            with suppress(ConflictError):
                await self.rival.places.claim(claim(session, f"rival-{session}", RIVAL))
                taken = True
        os.kill(lost.pid, signal.SIGCONT)
        return taken

    async def _end_lease(self, node: str) -> None:
        async def work(connection: Any) -> None:
            ended = "UPDATE nodes SET until = clock_timestamp() - interval '1 hour' WHERE name = $1"
            await connection.execute(ended, node)

        await self.database.transaction(work)

    async def _examined(self, session: str, taken: bool, created: bool) -> list[str]:
        lives = await self._by_node(session)
        if taken and lives:  # a node that was given up runs it until it hears of that
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARS_SECONDS):
                    while lives:
                        lives = await self._by_node(session)
        here = [*lives]
        place = await self._column("SELECT node FROM places WHERE id = $1", session)
        found = []
        if taken and (here or place != [RIVAL]):
            found.append(f"the rival has it, and it lives at {here}, its place at {place}")
        elif not taken and (here != place or (created and len(here) != 1)):
            found.append(f"it lives at {here}, and its place is {place}")
        elif created and here and lives[here[0]] != 2:
            found.append(f"{lives[here[0]]} lives have written to its file")
        for name in here:
            await self.servers[name].ok("DELETE", f"/api/sessions/{session}?purge=true")
        if taken:
            await self.rival.release(f"rival-{session}")
            await self.rival.purge(session)
        return found + await self._left()

    async def _by_node(self, session: str) -> dict[str, int]:
        """How many lives have run in it, where it is."""
        found = {name: await self._lives(name, session) for name in self.servers}
        return {name: count for name, count in found.items() if count is not None}

    async def _lives(self, node: str, session: str) -> int | None:
        """How many lives have run there, with this one; None: it has none there."""
        path, body = f"/api/sessions/{session}/exec", {"argv": _COUNT}
        async with asyncio.timeout(PROGRAM_SECONDS):
            while True:
                status, answer = await self.servers[node].call("POST", path, body)
                if status == 200 and answer["stdout"]:
                    return int(answer["stdout"])
                # The command was ended with its session, which its node has just given up.
                ended = status == 200 and answer["exit_code"] != 0
                if status not in _LATER and not ended:
                    return None
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _left(self) -> list[str]:
        """What is left of sessions that have ended everywhere."""
        selects = {
            "moves": "SELECT node FROM moves",
            "places": "SELECT id FROM places",
            "files": "SELECT id FROM workspaces",
        }
        found = await self._rows(selects)
        turns = itertools.count()
        with suppress(TimeoutError):
            async with asyncio.timeout(WAIT_SECONDS):
                while found:
                    await pause(next(turns))
                    found = await self._rows(selects)
        wrong = [f"{what} are left: {rows}" for what, rows in found.items()]
        usage = await self._column("SELECT owner FROM key_usage WHERE sessions <> 0")
        return wrong + [f"a session of {owner} still counts" for owner in usage]

    async def _rows(self, selects: dict[str, str]) -> dict[str, list[str]]:
        """What each of them finds, if it finds something."""
        found = {what: await self._column(select) for what, select in selects.items()}
        return {what: rows for what, rows in found.items() if rows}

    async def _column(self, select: str, *values: str) -> list[str]:
        async def work(connection: Any) -> list[str]:
            return [str(row[0]) for row in await connection.fetch(select, *values)]

        return await self.database.transaction(work)


async def _tried(server: Server, path: str, body: Any) -> object:
    """The answer, or why there is none."""
    try:
        return await server.call("POST", path, body)
    except (aiohttp.ClientError, ConnectionError) as error:
        return error


@asynccontextmanager
async def moving(directory: Path, **settings: str) -> AsyncIterator[Moving]:
    """Two nodes on one engine, a database, and a rival whose lease outlasts the run."""
    async with AsyncExitStack() as closers:
        database = closers.enter_context(running())
        await asyncio.to_thread(database.sql, f"CREATE DATABASE {_DATABASE}")
        dsn = database.url(_DATABASE)
        await make_schema(dsn)
        pool = await closers.enter_async_context(opened(dsn))
        port = free_port()
        link = await closers.enter_async_context(cutting(port))
        ways = {SOURCE: (free_port(), None), TARGET: (port, link)}
        servers = {}
        for name, (listen, before) in ways.items():
            shown = listen if before is None else urlsplit(before.url).port
            server = _server(directory, name, dsn, listen, shown or listen)
            server.environment.update(settings)
            closers.callback(unmount_all, server.state_dir)
            closers.callback(end_sandboxes, server.state_dir)
            closers.push_async_callback(server.stop)
            await server.start()
            servers[name] = server
        yield Moving(servers, link, pool, await joined(pool, RIVAL))


def _server(directory: Path, name: str, dsn: str, listen: int, shown: int) -> Server:
    """A node; others reach it at the port that it shows."""
    files = issue(directory / "certificates", name, ["127.0.0.1"])
    server = Server(
        directory / name,
        **{
            "PADDOCK_MIN_FREE_MEMORY_BYTES": "0",
            "PADDOCK_MIN_FREE_DISK_BYTES": "0",
            "PADDOCK_CLUSTER": CLUSTER,
            "PADDOCK_CLUSTER_DATABASE": dsn,
            "PADDOCK_NODE": name,
            "PADDOCK_NODE_URL": f"https://127.0.0.1:{shown}",
            "PADDOCK_NODE_LISTEN": f"127.0.0.1:{listen}",
            "PADDOCK_NODE_CERT": str(files.certificate),
            "PADDOCK_NODE_KEY": str(files.key),
            "PADDOCK_NODE_CA": str(files.authority),
            VARIABLE: str(directory / f"{name}-dies-at"),
        },
    )
    server.module = "tests.chaos.dying"
    return server


async def lose_all(moves: Moving, losses: Iterable[Loss], report: Report) -> list[str]:
    """Has them happen one after the other; returns what was wrong."""
    complaints = []
    for number, loss in enumerate(losses):
        report(f"{number + 1}: {loss}")
        for wrong in await moves.lose(loss, number):
            report(f"{loss}: {wrong}")
            complaints.append(f"{loss}: {wrong}")
    return complaints
