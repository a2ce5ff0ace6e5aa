"""Starts and stops the control plane in the background: `python -m scripts.service`."""

import argparse
import asyncio
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from images.progress import detail, failure, step
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import PaddockError
from orchestrator.operate.removal import RemovalError, engine_of, instance_of
from orchestrator.settings import instance_url
from orchestrator.settings.settings import Settings, ensure_state_dir, load_settings

# A slow machine compiles everything at the first start. One that ends is not waited for.
READY_SECONDS = 600
# After this long, it is said that the start or the end takes long.
SLOW_SECONDS = 30
# The end removes sandboxes that wait, and the open network, which takes a slow machine long.
STOP_SECONDS = 300
_MOST_ANSWER_BYTES = 65_536
# How it is started.
COMMAND = [sys.executable, "-m", "paddock", "serve"]


class ServiceError(Exception):
    """The control plane can't be started or stopped; the message gives the reason in one line."""


def start(settings: Settings) -> None:
    """Stops an older control plane, starts a new one, and returns when it is ready.

    Sandboxes survive a restart. Raises: ServiceError.
    """
    stop(settings)
    if _listens(instance_url.url_of(*settings.address)):
        raise ServiceError(f"another program listens on {settings.listen}: set PADDOCK_LISTEN")
    if _listens(url := instance_url.find_url(settings)):
        raise ServiceError(f"another control plane of this state directory listens on {url}")
    ensure_state_dir(settings.state_dir)
    with _log(settings).open("ab") as log:
        log_start = log.tell()
        process = subprocess.Popen(
            COMMAND,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PADDOCK_LOG_FILE": str(_log(settings))},
        )
    _pid_file(settings).write_text(f"{process.pid}\n")
    began = time.monotonic()
    missing, told = None, False
    while time.monotonic() < began + READY_SECONDS:
        # It reports its address itself: with port 0 only the system knows it.
        if (missing := what_is_missing(instance_url.find_url(settings))) is None:
            step("control plane is ready")
            return
        if not told and time.monotonic() > began + SLOW_SECONDS:
            detail(f"it takes long to start ({missing}): its log is {_shown(_log(settings))}")
            told = True
        try:
            # If the process ends, the wait ends early.
            process.wait(0.1)
            break
        except subprocess.TimeoutExpired:
            continue
    _show_log(settings, log_start)
    ended = process.poll()
    late = f"is not ready after {READY_SECONDS} s ({missing})"
    what = late if ended is None else f"ended with exit status {ended}"
    raise ServiceError(f"the control plane {what}: its log is {_shown(_log(settings))}")


def stop(settings: Settings) -> bool:
    """Stops the control plane cleanly; returns False if none was running. Raises: ServiceError."""
    process = _running(settings)
    if process is not None:
        process.terminate()
        try:
            if not _ends(process, SLOW_SECONDS):
                detail(f"it takes long to end: its log is {_shown(_log(settings))}")
                process.wait(STOP_SECONDS - SLOW_SECONDS)
        except psutil.TimeoutExpired:
            raise ServiceError(
                f"the control plane (process {process.pid}) has not ended in {STOP_SECONDS} s"
            ) from None
    _pid_file(settings).unlink(missing_ok=True)
    return process is not None


def _ends(process: psutil.Process, seconds: float) -> bool:
    try:
        process.wait(seconds)
    except psutil.TimeoutExpired:
        return False
    return True


def _print_where(settings: Settings) -> None:
    url = instance_url.find_url(settings)
    step(f"listening on {url}")
    step(f"console at {url}/ in a browser")
    if settings.admin_key is None and settings.keys_file is None:
        step(f"admin key in {_shown(settings.state_dir / 'admin.key')}")
    step(f"log in {_shown(_log(settings))}; `make stop` stops it")


async def _sandboxes(settings: Settings) -> int:
    instance = instance_of(settings.state_dir)
    if instance is None:
        return 0
    engine = engine_of(settings, instance)
    try:
        return len(await engine.list())
    finally:
        await engine.close()


def _print_stopped(settings: Settings, was_running: bool) -> None:
    step("control plane stopped" if was_running else "no control plane is running")
    count = asyncio.run(_sandboxes(settings))
    if count:
        step(f"sandboxes still running: {count}; `make run` takes over, `make clean` ends them")


def _running(settings: Settings) -> psutil.Process | None:
    """The pid file's process, if it is a control plane and not a later process with that pid."""
    try:
        process = psutil.Process(int(_pid_file(settings).read_text()))
        return process if process.cmdline()[1:] == COMMAND[1:] else None
    except (FileNotFoundError, ValueError, psutil.NoSuchProcess):
        return None


def _listens(url: str) -> bool:
    place = urlsplit(url)
    if not place.port:  # the system chooses the port
        return False
    try:
        with socket.create_connection((place.hostname, place.port), timeout=2):
            return True
    except OSError:
        return False


def what_is_missing(url: str) -> str | None:
    """Why it is not ready; None if it is."""
    place = urlsplit(url)
    if not place.port:
        return "it does not listen yet"
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        return None if answer.status == 200 else _failed_checks(answer.read(_MOST_ANSWER_BYTES))
    except (OSError, http.client.HTTPException) as error:
        return f"it does not answer: {error or type(error).__name__}"
    finally:
        connection.close()


def _failed_checks(answer: bytes) -> str:
    """What the answer says of checks that fail."""
    try:
        checks = json.loads(answer)["checks"].items()
        failed = [f"{name}: {check['detail']}" for name, check in checks if not check["ok"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        failed = []
    return "; ".join(failed) or "status 503"


def _show_log(settings: Settings, start_at: int) -> None:
    with _log(settings).open("rb") as log:
        # The log may have been rotated.
        log.seek(min(start_at, log.seek(0, os.SEEK_END)))
        lines = log.read().decode(errors="replace").splitlines()
    detail("\n".join(lines[-20:]))


def _pid_file(settings: Settings) -> Path:
    return settings.state_dir / "paddock.pid"


def _log(settings: Settings) -> Path:
    return settings.log_file or settings.state_dir / "paddock.log"


def _shown(path: Path) -> str:
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def main() -> int:
    """Runs one command and returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.service", description="The control plane in the background."
    )
    parser.add_argument("command", choices=["start", "stop", "where"])
    command = parser.parse_args().command
    try:
        settings = load_settings()
        if command == "start":
            start(settings)
        elif command == "stop":
            _print_stopped(settings, stop(settings))
        else:
            _print_where(settings)
    except (ConfigError, ServiceError, RemovalError, PaddockError) as error:
        failure(str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
