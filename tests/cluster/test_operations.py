"""Every command of the page about operating a cluster, on a node with a gateway and a database."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.privileges import UID
from orchestrator.cluster.certificates import GATEWAY, issue
from scripts.cluster.database import programs
from tests.support.cluster_store import (
    CLUSTER,
    counted_anew,
    make_schema,
    opened,
    set_lease,
    usage_of,
)
from tests.support.documents import blocks
from tests.support.finished import finished
from tests.support.free_ports import free_port
from tests.support.leaks import end_sandboxes, unmount_all
from tests.support.limits import PROGRAM_SECONDS
from tests.support.made_agents import give
from tests.support.postgres import FreshDatabase
from tests.support.readers import reader_environment
from tests.support.server import ROOT, Server
from tests.support.until import until

_PAGE = ROOT / "docs" / "operations" / "cluster.md"
_NODE = "node-1"
# A service manager, of which the test has two services.
_SYSTEMCTL = """#!{python}
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect("{socket}")
client.sendall(" ".join(sys.argv[1:]).encode() + b"\\n")
sys.exit(client.recv(4) != b"done")
"""


def _commands() -> dict[str, str]:
    """What the page has to run, by the headings."""
    found, heading = dict[str, str](), ""
    block_at = {block.line: block for block in blocks(_PAGE.read_text())}
    for number, line in enumerate(_PAGE.read_text().splitlines(), 1):
        if line.startswith("## "):
            heading = line.removeprefix("## ")
        if number in block_at:
            assert "test_operations.py" in block_at[number].note
            found[heading] = block_at[number].text
    return found


class _GatewayService:
    """`paddock gateway` with these settings."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "paddock", "gateway"),
            env=self._environment,
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(PROGRAM_SECONDS):
            said = b""
            while b"serving the cluster's API" not in said:
                line = await self._process.stdout.readline()
                assert line, f"the gateway did not start: {said.decode()}"
                said += line

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            await process.communicate()


@dataclass
class Operated:
    """A cluster of one node and one gateway, and what runs the page's commands."""

    server: Server
    gateway: _GatewayService
    postgres: FreshDatabase
    directory: Path
    environment: dict[str, str]

    async def runs(self, text: str) -> str:
        """Runs commands as a reader would; what they print."""
        status, output = await finished(
            *("bash", "-c", f"set -eu\n{text}"), cwd=self.directory, env=self.environment,
            seconds=10 * PROGRAM_SECONDS,
        )  # fmt: skip
        assert status == 0, output[-4000:]
        return output

    async def serves(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Does what `systemctl` was asked for."""
        verb, unit = (await reader.readline()).decode().split()
        part: Server | _GatewayService = self.gateway if "gateway" in unit else self.server
        if verb in ("stop", "restart"):
            await part.stop()
        if verb in ("start", "restart"):
            await part.start()
        if (verb, unit) == ("stop", "paddock"):
            # What waiting would do: the next start renews it.
            async with opened(self.postgres.dsn) as database:
                await set_lease(database, _NODE, "-1 s")
        writer.write(b"done")
        writer.close()

    async def creates(self, *sessions: str) -> None:
        """Creates sessions on the node."""
        for session in sessions:
            body = {"id": session, "permission_level": "low"}
            await self.server.ok("POST", "/api/sessions", body)

    async def ends(self) -> dict[str, str]:
        """Why sessions of the node have ended, or that they live, by their ids."""
        items = (await self.server.ok("GET", "/api/sessions?limit=100"))["items"]
        return {
            item["id"]: item["status"]
            if item["termination"] is None
            else item["termination"]["rationale_code"]
            for item in items
        }

    async def counts(self) -> tuple[int, ...]:
        """What the cluster counts for the node's admin, which must be what there is."""
        async with opened(self.postgres.dsn) as database:
            used, anew = await usage_of(database, "admin"), await counted_anew(database, "admin")
        assert used == anew
        return used

    def placed(self) -> set[str]:
        """The ids that the cluster has places for."""
        return set(self.postgres.sql("SELECT id FROM paddock.places").split())


@asynccontextmanager
async def _operated(
    postgres: FreshDatabase, directory: Path, image: str
) -> AsyncIterator[Operated]:
    await make_schema(postgres.dsn)
    node = issue(directory / "pki", _NODE, ["127.0.0.1"])
    gateway = issue(directory / "pki", GATEWAY, [])
    port, state_dir = free_port(), directory / "state"
    of_both = {
        "PADDOCK_CLUSTER": CLUSTER,
        "PADDOCK_CLUSTER_DATABASE": postgres.server.url(postgres.name, password=False),
        "PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE": str(postgres.server.password_file),
    }
    of_node = {
        **of_both,
        "PADDOCK_IMAGE": image,
        "PADDOCK_NODE": _NODE,
        "PADDOCK_NODE_URL": f"https://127.0.0.1:{port}",
        "PADDOCK_NODE_LISTEN": f"127.0.0.1:{port}",
        "PADDOCK_NODE_CERT": str(node.certificate),
        "PADDOCK_NODE_KEY": str(node.key),
        "PADDOCK_NODE_CA": str(node.authority),
    }
    of_gateway = {
        **of_both,
        "PADDOCK_CLUSTER_DATABASE_PASSWORD_FILE": str(_for_gateway(postgres, directory)),
        "PADDOCK_GATEWAY_CERT": str(gateway.certificate),
        "PADDOCK_GATEWAY_KEY": str(gateway.key),
        "PADDOCK_GATEWAY_CA": str(gateway.authority),
        "PADDOCK_GATEWAY_PORT": "0",
    }
    server = Server(state_dir, **of_node)
    await give(state_dir, image)
    environment = {
        **reader_environment(server, directory / "bin"),
        **server.environment,
        **of_gateway,
        "PGPASSWORD": postgres.server.password_file.read_text().strip(),
    }
    environment["PATH"] = f"{environment['PATH']}:{programs()}"
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")}
    service = _GatewayService({**kept, **of_gateway})
    environment.update(of_both)
    operated = Operated(server, service, postgres, directory, environment)
    systemctl = directory / "bin" / "systemctl"
    systemctl.write_text(_SYSTEMCTL.format(python=sys.executable, socket=directory / "socket"))
    systemctl.chmod(0o755)
    async with AsyncExitStack() as closers:
        closers.callback(unmount_all, state_dir)
        closers.callback(end_sandboxes, state_dir)
        closers.push_async_callback(server.stop)
        closers.push_async_callback(service.stop)
        listener = await asyncio.start_unix_server(operated.serves, directory / "socket")
        closers.callback(listener.close)
        await server.start()
        await service.start()
        yield operated


def _for_gateway(postgres: FreshDatabase, directory: Path) -> Path:
    """A copy of the password, which the gateway's user can read."""
    directory.chmod(0o711)
    file = directory / "gateway-password"
    file.write_text(postgres.server.password_file.read_text())
    os.chown(file, UID, UID)
    file.chmod(0o600)
    return file


@pytest.mark.skipif(os.geteuid() != 0, reason="a gateway gives up root's rights")
async def test_each_command_of_the_page_does_what_it_says(
    postgres: FreshDatabase, sandbox_image: str
) -> None:
    """In the order of the page: upgrade, backup, both restorations, certificates, machines."""
    commands = _commands()
    with tempfile.TemporaryDirectory(prefix="paddock-") as directory:
        async with _operated(postgres, Path(directory), sandbox_image) as operated:
            run, server = operated.runs, operated.server
            assert _NODE in await run(commands["Look"])
            await operated.creates("kept")
            assert _NODE in await run(commands["Upgrade"])
            assert (await operated.ends())["kept"] == "active"
            await run(commands["Backup"])

            await operated.creates("young")
            await run(commands["Restore a node"])
            assert await operated.ends() == {"kept": "crash"}
            await _told(server)
            assert operated.placed() == set()
            assert (await operated.counts())[:1] == (0,)

            await operated.creates("later")
            await run(commands["Restore the database"])
            assert (await operated.ends())["later"] == "moved"
            await _told(server)
            assert operated.placed() == set()
            await operated.counts()

            assert "OK" in await run(commands["Renew certificates"])
            await run(commands["Change the database's password"])
            await operated.creates("last")
            await run(commands["Add a machine"])
            assert "given up" in await run(commands["Remove a machine"])
            assert operated.placed() == set()
            await operated.counts()


async def _told(server: Server) -> None:
    """Waits until the cluster knows what the node has to tell."""
    import sqlite3

    with sqlite3.connect(server.state_dir / "paddock.db") as connection:
        await until(lambda: not connection.execute("SELECT 1 FROM outbox").fetchall())
