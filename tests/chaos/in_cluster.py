"""The control plane of a chaos run as a node: its cluster's database, and what must be true there.

Another node claims the ids in play while it is dead: each id lives at most once.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

from orchestrator.cluster.certificates import issue
from orchestrator.cluster.postgres.pool import ClusterDatabase
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.fault_points import FaultPoint
from tests.support.cluster_store import (
    CLUSTER,
    StoreNode,
    claim,
    counted_anew,
    joined,
    make_schema,
    opened,
    usage_of,
)
from tests.support.free_ports import free_port
from tests.support.postgres import running
from tests.support.until import until

NODE, RIVAL = "node-1", "rival"
# What no control plane passes without a cluster.
ONLY_IN_CLUSTER = frozenset({FaultPoint.OUTBOX_DELIVERED, FaultPoint.START_COMPARED})
_DATABASE = "chaos"
_LIVE = "status IN ('active', 'paused')"


class InCluster:
    """The cluster of the run. `environment` makes a control plane its node."""

    def __init__(self, environment: dict[str, str], database: ClusterDatabase, rival: StoreNode):
        self.environment = environment
        self._database = database
        self._rival = rival
        self._taken: set[str] = set()

    async def contend(self, sessions: Iterable[str]) -> None:
        """Has the rival claim each of these ids, as a client would that is put there instead."""
        for session in sessions:
            try:
                await self._rival.places.claim(claim(session, f"rival-{session}", RIVAL))
            except ConflictError:
                continue
            self._taken.add(session.lower())

    async def examine(self, state_dir: Path) -> list[str]:
        """Whether the node and the database agree; then the rival has nothing any more."""
        try:
            await until(lambda: _waiting(state_dir) == 0)
        except TimeoutError:
            return [f"{_waiting(state_dir)} messages are not delivered"]
        live, workspaces, owners, named = _of_node(state_dir)
        found = [f"{name}: lives here and at the rival" for name in self._taken & {*live.values()}]
        for what, there, here in (
            ("places", {*await self._column("SELECT session_key FROM places", NODE)}, {*live}),
            ("workspaces", {*await self._column("SELECT id FROM workspaces", NODE)}, workspaces),
            (
                "records of live sessions",
                {*await self._column("SELECT session_key FROM records", NODE, "ended_at IS NULL")},
                {*live},
            ),
            ("names", {*await self._column("SELECT id FROM names", NODE)}, named),
        ):
            found += _differences(what, there, here)
        for owner in (*owners, RIVAL):
            usage, counted = await usage_of(self._database, owner), await self._counted(owner)
            if usage != counted:
                found.append(f"usage of {owner}: {usage}, and its sessions have {counted}")
        await self._retreat()
        return found

    async def _counted(self, owner: str) -> tuple[int, ...]:
        return await counted_anew(self._database, owner)

    async def _column(self, select: str, node: str, condition: str = "true") -> list[str]:
        async def work(connection: Any) -> list[str]:
            rows = await connection.fetch(f"{select} WHERE node = $1 AND {condition}", node)
            return [str(value) for row in rows for value in row.values()]

        return await self._database.transaction(work)

    async def _retreat(self) -> None:
        """The rival's sessions end, and leave nothing."""
        for session in self._taken:
            await self._rival.release(f"rival-{session}")
            await self._rival.purge(session)
        self._taken.clear()


# What a node makes for itself has no name in the cluster.
_NAMED = (
    "SELECT workspace_id FROM volumes UNION ALL"
    " SELECT id FROM snapshots WHERE name IS NOT NULL AND owner NOT LIKE 'system:%'"
)


def _waiting(state_dir: Path) -> int:
    with closing(sqlite3.connect(state_dir / "paddock.db", timeout=30)) as connection:
        return int(connection.execute("SELECT count(*) FROM outbox").fetchone()[0])


def _of_node(state_dir: Path) -> tuple[dict[str, str], set[str], set[str], set[str]]:
    """Its live sessions' ids by key, its workspaces and volumes, and the owners of any session.

    The last ones are the ids of volumes and snapshots that keys have named.
    """
    with closing(sqlite3.connect(state_dir / "paddock.db", timeout=30)) as connection:
        live = connection.execute(f"SELECT key, lower(id) FROM sessions WHERE {_LIVE}").fetchall()
        workspaces = connection.execute("SELECT lower(id) FROM workspaces").fetchall()
        owners = connection.execute("SELECT DISTINCT owner FROM sessions").fetchall()
        named = connection.execute(_NAMED).fetchall()
    first, second, third = ({each for (each,) in rows} for rows in (workspaces, owners, named))
    return dict(live), first, second, third


def _differences(what: str, there: set[str], here: set[str]) -> Iterator[str]:
    if more := there - here:
        yield f"{what}: the cluster has {sorted(more)}, and the node has not"
    if less := here - there:
        yield f"{what}: the node has {sorted(less)}, and the cluster has not"


@asynccontextmanager
async def in_cluster(directory: Path) -> AsyncIterator[InCluster]:
    """A database, the certificates of a node, and a rival whose lease outlasts the run."""
    files = issue(directory / "certificates", NODE, ["127.0.0.1"])
    port = free_port()
    with running() as server:
        await asyncio.to_thread(server.sql, f"CREATE DATABASE {_DATABASE}")
        dsn = server.url(_DATABASE)
        await make_schema(dsn)
        environment = {
            "PADDOCK_CLUSTER": CLUSTER,
            "PADDOCK_CLUSTER_DATABASE": dsn,
            "PADDOCK_NODE": NODE,
            "PADDOCK_NODE_URL": f"https://127.0.0.1:{port}",
            "PADDOCK_NODE_LISTEN": f"127.0.0.1:{port}",
            "PADDOCK_NODE_CERT": str(files.certificate),
            "PADDOCK_NODE_KEY": str(files.key),
            "PADDOCK_NODE_CA": str(files.authority),
        }
        async with opened(dsn) as database:
            yield InCluster(environment, database, await joined(database, RIVAL))
