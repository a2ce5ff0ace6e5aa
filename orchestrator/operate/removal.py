"""Lets go of a machine: what a state directory's control plane has outside of it is removed.

The directory itself stays, with the record, the workspaces and the keys.
"""

import asyncio
import fcntl
import sys
from pathlib import Path

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import PaddockError
from orchestrator.host.engine.docker import DockerEngine
from orchestrator.host.workspace.mounts import MountError, mounts_under, unmount
from orchestrator.settings.settings import Settings, load_settings


class RemovalError(Exception):
    """It can't be let go of; the message gives the reason in one line."""


def let_go(settings: Settings) -> int | None:
    """Removes the sandboxes, the open network and the mounts; returns how many sandboxes.

    None if no control plane has used the directory yet.

    Raises: RemovalError; PaddockError if the engine does not answer; MountError.
    """
    instance = instance_of(settings.state_dir)
    if instance is None:
        return None
    _require_unused(settings.state_dir)
    removed = asyncio.run(_remove_sandboxes(settings, instance))
    for mount in sorted(mounts_under(str(settings.state_dir)), key=len, reverse=True):
        unmount(mount)
    return removed


def instance_of(state_dir: Path) -> str | None:
    """The id in the labels of this state directory's containers; None before the first start.

    Raises: RemovalError.
    """
    try:
        text = (state_dir / "instance").read_text(encoding="utf-8", errors="replace").strip()
    except FileNotFoundError:
        return None
    if len(text) != 8 or not set(text) <= set("0123456789abcdef"):
        raise RemovalError(f"{state_dir / 'instance'} does not hold 8 hex digits")
    return text


def _require_unused(state_dir: Path) -> None:
    with (state_dir / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RemovalError(
                f"a control plane, possibly in a container, uses {state_dir}: stop it first"
            ) from None


def engine_of(settings: Settings, instance: str) -> DockerEngine:
    """The engine that runs the instance's sandboxes; the caller closes it."""
    return DockerEngine(
        instance,
        host=settings.docker_host,
        timeout=settings.engine_timeout,
        threads=settings.engine_threads,
        resolvers=settings.resolvers,
    )


async def _remove_sandboxes(settings: Settings, instance: str) -> int:
    engine = engine_of(settings, instance)
    try:
        containers = await engine.list()
        for container in containers:
            await engine.remove(container.id)
        await engine.remove_open_network(settings.image)
    finally:
        await engine.close()
    return len(containers)


def main() -> int:
    """Lets go of the state directory of the settings: before a package is removed."""
    try:
        removed = let_go(load_settings())
    except (ConfigError, RemovalError, PaddockError, MountError, OSError) as error:
        print(f"paddock: {error}", file=sys.stderr)
        return 1
    if removed:
        print(f"removed sandboxes: {removed}; their workspaces and their record stay")
    return 0


if __name__ == "__main__":
    sys.exit(main())
