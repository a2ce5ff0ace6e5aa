"""A gateway as a process of its own, with the database at a DSN, without TLS to its nodes: `DSN`.

It prints its port, and serves until its standard input ends.
"""

import asyncio
import sys

from aiohttp import web

from gateway.app import create_app
from gateway.http import http_options
from gateway.open import open_gateway
from orchestrator.cluster.postgres.directory import PostgresDirectory
from orchestrator.cluster.postgres.pool import Access, ClusterDatabase
from orchestrator.rules.access.keys import KeyRing
from tests.support.cluster_store import CLUSTER
from tests.support.fake_cluster import no_tls


async def main(dsn: str) -> None:
    """Serves it."""
    database = ClusterDatabase(Access(CLUSTER, dsn))
    await database.open()
    gateway = await open_gateway(PostgresDirectory(database), KeyRing({}), no_tls)
    runner = web.AppRunner(create_app(gateway), handler_cancellation=True, **http_options(gateway))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin, ended.set)
    await ended.wait()
    await runner.cleanup()
    await gateway.close()
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
