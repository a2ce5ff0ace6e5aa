"""A gateway as a process of its own, with one node at a URL and no database: `URL SESSION`.

`CERT KEY CA` besides are its certificate, its key and the authority of the node's, whose name is
`one`. It prints its port, and serves until its standard input ends.
"""

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from gateway.app import create_app
from gateway.http import http_options
from gateway.limits import GatewayLimits
from gateway.members import Contexts
from gateway.open import open_gateway
from orchestrator.cluster.directory import Hold
from orchestrator.cluster.tls import Face, gateway_context
from orchestrator.ground.serving.tls_memory import keep_tls_buffers_small
from orchestrator.rules.access.keys import KeyRing
from tests.support.fake_cluster import FakeDirectory, no_tls, node


async def main(url: str, session_id: str, *files: str) -> None:
    """Serves it."""
    keep_tls_buffers_small()
    contexts: Contexts = no_tls
    if files:
        cert, key, authority = map(Path, files)
        made = {face: gateway_context(cert, key, authority, face) for face in Face}
        contexts = made.__getitem__
    directory = FakeDirectory()
    directory.known["one"] = node("one", url)
    directory.places[session_id] = ("one", Hold.LIVE)
    most = 100_000
    limits = GatewayLimits(of_credential=most, of_address=most, of_all=most)
    gateway = await open_gateway(directory, KeyRing({}), contexts, limits=limits)
    runner = web.AppRunner(create_app(gateway), handler_cancellation=True, **http_options(gateway))
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, backlog=4096)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(sys.stdin, ended.set)
    await ended.wait()
    await runner.cleanup()
    await gateway.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
