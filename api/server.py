"""The control plane as a server: opens it, listens, and shuts it down cleanly."""

import asyncio
import errno
import gc
import signal
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from api.app import create_app
from api.compat.enabled import OWN_PORTS, ServedPorts
from api.gateway_listener import for_gateways
from api.http.node_app import create_node_app
from api.log.logs import logging_to_stdout
from api.previews.app import create_preview_app
from orchestrator.cluster.tls import Face
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError
from orchestrator.ground.loop_lag import LoopLag, watched_loop
from orchestrator.ground.serving.connections import CONNECTIONS, raise_descriptors
from orchestrator.ground.serving.private_memory import keep_memory_private
from orchestrator.ground.serving.server_log import ServerLog
from orchestrator.settings import instance_url
from orchestrator.settings.preview_address import preview_address, preview_url
from orchestrator.settings.settings import Settings

# A path of 4096 characters may take twelve times as many when encoded. Longer lines are reported as
# too long.
MAX_LINE_BYTES = 64 * 1024
# Also limits the time in which a client may send a request's headers.
KEEPALIVE_SECONDS = 75.0
# The time that requests get to finish at shutdown.
SHUTDOWN_SECONDS = 5.0


def run(settings: Settings) -> None:
    """Serves until TERM or INT. Sandboxes keep running, and the next start takes them over.

    Raises: ConfigError, StoreError, PaddockError if it can't start.
    """
    lag = LoopLag()
    with asyncio.Runner(loop_factory=lambda: watched_loop(lag)) as runner:
        runner.run(serve(settings, lag))


async def serve(settings: Settings, lag: LoopLag) -> None:
    """Serves in a loop whose `lag` is measured. Raises: as `run`."""
    keep_memory_private()
    with logging_to_stdout(settings) as say:
        await _serve(settings, lag, say)


def http_options(plane: ControlPlane) -> dict[str, Any]:
    """The options with which the application must be served."""
    return {
        # Uploads are stored as sent, and their size is the size sent.
        "auto_decompress": False,
        "max_line_size": MAX_LINE_BYTES,
        "logger": ServerLog(plane.metrics.not_http),
    }


async def _serve(settings: Settings, lag: LoopLag, say: Callable[[str], None]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    plane = await ControlPlane.open(settings, lag=lag)
    try:
        _settle_memory()
        await asyncio.sleep(0)  # the pass that has opened it ends
        lag.forget()
        app = create_app(plane)
        runner = await _set_up(app, plane)
        try:
            await _listen(runner, settings)
            async with (
                _previews(plane, app[OWN_PORTS], say) as previews,
                _nodes(plane) as nodes,
            ):
                faces = {Face.API: runner, **previews, **nodes}
                async with for_gateways(settings, faces, say):
                    _announce(runner, plane, say)
                    await stopping.wait()
        finally:
            instance_url.withdraw(settings.state_dir)
            await runner.cleanup()
    finally:
        await plane.close()


def _settle_memory() -> None:
    """Has the collector of cycles leave out the 140,000 objects that stay for good.

    To look through them takes a tenth of a second, in which nothing else runs.
    """
    gc.collect()
    gc.freeze()


async def _set_up(app: web.Application, plane: ControlPlane) -> web.AppRunner:
    runner = web.AppRunner(
        app,
        access_log=None,
        handler_cancellation=True,
        keepalive_timeout=KEEPALIVE_SECONDS,
        shutdown_timeout=SHUTDOWN_SECONDS,
        **http_options(plane),
    )
    await runner.setup()
    if runner.server is not None:
        app[CONNECTIONS].bound(runner.server, raise_descriptors())
    return runner


@asynccontextmanager
async def _previews(
    plane: ControlPlane, own_ports: list[ServedPorts], say: Callable[[str], None]
) -> AsyncGenerator[dict[Face, web.AppRunner]]:
    """Serves ports of sessions meanwhile, at an address of their own; none if it is switched off.

    Raises: PaddockError.
    """
    settings = plane.settings
    address = preview_address(settings)
    if address is None:
        yield {}
        return
    runner = await _set_up(create_preview_app(plane, address[0], own_ports=own_ports), plane)
    try:
        try:
            await web.TCPSite(runner, *address).start()
        except OSError as error:
            reason = f"can't listen on {address[0]}:{address[1]}: {error.strerror}"
            if settings.preview_listen is not None:
                raise PaddockError(f"{reason}; set PADDOCK_PREVIEW_LISTEN") from None
            say(f"ports of sessions are not served: {reason}; set PADDOCK_PREVIEW_LISTEN")
            plane.previews.url = None
        else:
            host, port, *_ = runner.addresses[0]
            plane.previews.url = preview_url(settings, (host, port))
            say(f"serving ports of sessions at {plane.previews.url}")
        yield {Face.PREVIEWS: runner}
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _nodes(plane: ControlPlane) -> AsyncGenerator[dict[Face, web.AppRunner]]:
    """Serves other nodes of the cluster meanwhile, if there is one."""
    if plane.settings.cluster is None:
        yield {}
        return
    runner = await _set_up(create_node_app(plane), plane)
    try:
        yield {Face.NODES: runner}
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, settings: Settings) -> None:
    host, port = settings.address
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        in_use = error.errno == errno.EADDRINUSE
        reason = "another program does" if in_use else error.strerror or str(error)
        raise PaddockError(
            f"can't listen on {settings.listen}: {reason}; set PADDOCK_LISTEN to another address"
        ) from None


def _announce(runner: web.AppRunner, plane: ControlPlane, say: Callable[[str], None]) -> None:
    host, port, *_ = runner.addresses[0]
    settings = plane.settings
    url = settings.published_url or instance_url.url_of(host, port)
    instance_url.announce(settings.state_dir, url)
    for host, port, *_ in runner.addresses:
        say(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    if plane.keys.admin_key_file is not None:
        say(f"admin key in {plane.keys.admin_key_file}")
