"""The control plane as a program: `python -m api serve`."""

import argparse
import asyncio
import contextlib
import logging
import signal
import sys

from aiohttp import web

from api.app import create_app
from orchestrator.config import ConfigError, Settings, load_settings
from orchestrator.control_plane import ControlPlane
from orchestrator.errors import PaddockError
from orchestrator.store.database import StoreError

# Also bounds how long a client may take to send a request's headers.
KEEPALIVE_SECONDS = 75.0
# Requests under way are given so long to finish when the process is told to stop.
SHUTDOWN_SECONDS = 5.0
_EXIT_FAILED = 1
_EXIT_CONFIG = 2


def main() -> int:
    """Runs one command and returns its exit status."""
    parser = argparse.ArgumentParser(prog="python -m api", description="Paddock's control plane.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("serve", help="serve the API until told to stop by TERM or INT")
    parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        asyncio.run(_serve(load_settings()))
    except ConfigError as error:
        return _complain(str(error), _EXIT_CONFIG)
    except PaddockError as error:
        return _complain(error.detail, _EXIT_FAILED)
    except (StoreError, OSError) as error:
        return _complain(str(error), _EXIT_FAILED)
    return 0


def _complain(text: str, status: int) -> int:
    print(f"paddock: {text}", file=sys.stderr)
    return status


async def _serve(settings: Settings) -> None:
    """Serves until TERM or INT; sandboxes go on, the next start takes them up again."""
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
            # What is uploaded is stored as it was sent, and its size is what was sent.
            auto_decompress=False,
            keepalive_timeout=KEEPALIVE_SECONDS,
            shutdown_timeout=SHUTDOWN_SECONDS,
        )
        await runner.setup()
        try:
            await _listen(runner, settings)
            _announce(runner, plane)
            await stopping.wait()
        finally:
            await runner.cleanup()
    finally:
        await plane.close()


async def _listen(runner: web.AppRunner, settings: Settings) -> None:
    host, port = settings.address
    try:
        await web.TCPSite(runner, host, port).start()
    except OSError as error:
        reason = error.strerror or str(error)
        raise PaddockError(
            f"can't listen on {settings.listen} (PADDOCK_LISTEN): {reason}"
        ) from None


def _announce(runner: web.AppRunner, plane: ControlPlane) -> None:
    for host, port, *_ in runner.addresses:
        print(f"listening on http://{f'[{host}]' if ':' in host else host}:{port}", flush=True)
    if plane.keys.admin_key_file is not None:
        print(f"admin key in {plane.keys.admin_key_file}", flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
