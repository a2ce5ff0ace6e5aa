"""The control plane as a server: opened, listening, and ended in good order."""

import asyncio
import errno
import signal
from collections.abc import Callable
from typing import Any

from aiohttp import web

from api.app import create_app
from api.logs import logging_to_stdout
from api.private_memory import keep_memory_private
from api.server_log import ServerLog
from orchestrator.config import instance_url
from orchestrator.config.settings import Settings
from orchestrator.control_plane import ControlPlane
from orchestrator.errors import PaddockError

# A path of 4096 characters may be sent as twelve times as many: what is too long of it is said.
MAX_LINE_BYTES = 64 * 1024
# Also bounds how long a client may take to send a request's headers.
KEEPALIVE_SECONDS = 75.0
# Requests under way are given so long to finish when the process is told to stop.
SHUTDOWN_SECONDS = 5.0


async def serve(settings: Settings) -> None:
    """Serves until TERM or INT; sandboxes go on, the next start takes them up again.

    Raises: ConfigError, StoreError, PaddockError when it can't start.
    """
    keep_memory_private()
    with logging_to_stdout(settings) as say:
        await _serve(settings, say)


def http_options(plane: ControlPlane) -> dict[str, Any]:
    """How the application is served, wherever it is."""
    return {
        # What is uploaded is stored as it was sent, and its size is what was sent.
        "auto_decompress": False,
        "max_line_size": MAX_LINE_BYTES,
        "logger": ServerLog(plane.metrics.not_http),
    }


async def _serve(settings: Settings, say: Callable[[str], None]) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    plane = await ControlPlane.open(settings)
    try:
        runner = web.AppRunner(
            create_app(plane),
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=KEEPALIVE_SECONDS,
            shutdown_timeout=SHUTDOWN_SECONDS,
            **http_options(plane),
        )
        await runner.setup()
        try:
            await _listen(runner, settings)
            _announce(runner, plane, say)
            await stopping.wait()
        finally:
            instance_url.withdraw(settings.state_dir)
            await runner.cleanup()
    finally:
        await plane.close()


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
    instance_url.announce(plane.settings.state_dir, instance_url.url_of(host, port))
    for host, port, *_ in runner.addresses:
        say(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}")
    if plane.keys.admin_key_file is not None:
        say(f"admin key in {plane.keys.admin_key_file}")
