"""Checks of memory, disk space, the clock, and the listening address."""

import errno
import http.client
import socket
from datetime import UTC, datetime, timedelta
from pathlib import Path

from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.host.node.base import Resources
from orchestrator.host.node.resources import resources
from orchestrator.settings.settings import Settings

MEMORY = "memory"
DISK = "disk"
CLOCK = "clock"
PORT = "port"
_GIB = 1024**3
# Twice the minimum leaves enough time to act.
_EARLY = 2
_ANSWER_SECONDS = 3.0


def check_resources(settings: Settings, existing: Path) -> list[Check]:
    """Free memory, and free space where workspaces are kept, compared with the minimums."""
    return resource_checks(settings, resources(existing))


def resource_checks(settings: Settings, left: Resources) -> list[Check]:
    """Free memory and free disk space, compared with the minimums."""
    return [memory_check(settings, left), disk_check(settings, left)]


def memory_check(settings: Settings, left: Resources) -> Check:
    """Free memory, compared with the minimum for starting a sandbox."""
    return _room(
        MEMORY,
        left.free_memory_bytes,
        settings.min_free_memory_bytes,
        "close sessions, add memory, or lower PADDOCK_MIN_FREE_MEMORY_BYTES",
    )


def disk_check(settings: Settings, left: Resources) -> Check:
    """Free disk space, compared with its minimum."""
    return _room(
        DISK,
        left.free_disk_bytes,
        settings.min_free_disk_bytes,
        "purge workspaces, add space, or lower PADDOCK_MIN_FREE_DISK_BYTES",
    )


def _room(name: str, free: int, least: int, remedy: str) -> Check:
    detail = f"{free / _GIB:.1f} GiB free, at least {least / _GIB:.1f} GiB needed"
    if free < least:
        return failure(name, detail, remedy)
    if free < _EARLY * least:
        return warning(name, detail, remedy)
    return ok(name, detail)


def clock_check(now: datetime, installed: datetime, last_event: str | None) -> Check:
    """The time must not be before this code was installed, or before the last recorded event."""
    remedy = "set the clock, and keep it correct with NTP"
    if last_event is not None and now < datetime.fromisoformat(last_event):
        return failure(CLOCK, f"it is {now:%Y-%m-%d %H:%M} UTC, before the last event", remedy)
    # File times may come from another machine.
    if now < installed - timedelta(days=1):
        return failure(CLOCK, f"it is {now:%Y-%m-%d %H:%M} UTC, before Paddock was built", remedy)
    return ok(CLOCK, f"{now:%Y-%m-%d %H:%M} UTC")


def check_clock(last_event: str | None) -> Check:
    """This machine's clock."""
    installed = datetime.fromtimestamp(Path(__file__).stat().st_mtime, UTC)
    return clock_check(datetime.now(UTC), installed, last_event)


def check_port(settings: Settings) -> Check:
    """Whether the address is free, or our own server answers there."""
    host, port = settings.address
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            probe.listen(1)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return port_check(settings.listen, _says_healthy(host, port))
        reason = error.strerror or str(error)
        return failure(PORT, f"{settings.listen}: {reason}", "set PADDOCK_LISTEN to another")
    return ok(PORT, f"{settings.listen} is free")


def port_check(listen: str, ours: bool) -> Check:
    """The result for an address that is in use, by us or by another process."""
    if ours:
        return ok(PORT, f"Paddock listens on {listen}")
    return failure(
        PORT,
        f"something else listens on {listen}",
        "end it, or set PADDOCK_LISTEN to another",
    )


def _says_healthy(host: str, port: int) -> bool:
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104
    connection = http.client.HTTPConnection(reachable, port, timeout=_ANSWER_SECONDS)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().getheader("Server") == "paddock"
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
