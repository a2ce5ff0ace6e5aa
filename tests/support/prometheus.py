"""Debian's Prometheus as a process of a test, and the Alertmanager that it tells."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer, unused_port

from tests.support.limits import WAIT_SECONDS

_CACHE = Path("/var/cache/paddock-prometheus/bin")


def program(name: str) -> str | None:
    """Where `prometheus` or `promtool` is; None if `make prometheus` found none."""
    return shutil.which(name, path=os.pathsep.join([str(_CACHE), os.environ.get("PATH", "")]))


@dataclass
class Alertmanager:
    """Takes the alerts that Prometheus sends, as an Alertmanager does."""

    # Those that fire, by the name of their rule.
    firing: set[str] = field(default_factory=set)
    # The summary of each that ever did.
    summaries: dict[str, str] = field(default_factory=dict)
    _told: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, request: web.Request) -> web.Response:
        """One message: alerts that began, and those that are over."""
        async with self._told:
            for alert in await request.json():
                name = alert["labels"]["alertname"]
                self.summaries[name] = alert["annotations"]["summary"]
                if datetime.fromisoformat(alert["endsAt"]) > datetime.now(UTC):
                    self.firing.add(name)
                else:
                    self.firing.discard(name)
            self._told.notify_all()
        return web.Response()

    async def fires(self, name: str) -> None:
        """Returns once the alert fires."""
        await self._until(lambda: name in self.firing)

    async def clears(self, name: str) -> None:
        """Returns once the alert does not fire."""
        await self._until(lambda: name not in self.firing)

    async def _until(self, holds: Any) -> None:
        async with asyncio.timeout(WAIT_SECONDS), self._told:
            await self._told.wait_for(holds)


@asynccontextmanager
async def alertmanager() -> AsyncIterator[tuple[Alertmanager, str]]:
    """An Alertmanager and its `host:port`."""
    manager = Alertmanager()
    app = web.Application()
    app.router.add_post("/api/v2/alerts", manager.take)
    async with TestServer(app) as server:
        yield manager, f"{server.host}:{server.port}"


@dataclass(frozen=True)
class Prometheus:
    """A server that runs."""

    url: str
    client: ClientSession

    async def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression at this moment. An expression that is wrong fails."""
        where = f"{self.url}/api/v1/query"
        async with self.client.post(where, data={"query": expression}) as response:
            answer = await response.json()
        assert answer["status"] == "success", (expression, answer)
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found


@asynccontextmanager
async def prometheus(configuration: Path, directory: Path) -> AsyncIterator[Prometheus]:
    """A server with that configuration; its data and its log are in the directory."""
    name = program("prometheus")
    assert name is not None
    address = f"127.0.0.1:{unused_port()}"
    log = directory / "prometheus.log"
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            name,
            f"--config.file={configuration}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address={address}",
            "--log.level=warn",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
    try:
        async with ClientSession() as client:
            yield Prometheus(f"http://{address}", client)
    finally:
        process.terminate()
        await process.wait()
