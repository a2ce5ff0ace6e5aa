"""Removes what this state directory's control plane created: sandboxes, mounts, network and files.

Workspaces are removed with the state directory. Images are removed unless something else uses them.
"""

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

from docker.errors import APIError, DockerException
from requests.exceptions import RequestException

from images import base
from images.progress import failure, step
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import PaddockError
from orchestrator.host.engine.base import LABEL_INPUTS
from orchestrator.host.workspace.mounts import MountError, mounts_under, unmount
from orchestrator.settings.settings import Settings, load_settings
from scripts import service

ENGINE_SECONDS = 60
REMOVE_SECONDS = 600
UNSHARE = Path(__file__).with_name("shared-state.sh")


def main() -> int:
    """Removes everything and returns the exit status."""
    try:
        settings = load_settings()
        service.stop(settings)
        instance = service.instance_id(settings)
        if instance is not None:
            _require_unused(settings)
            asyncio.run(_remove_sandboxes(settings, instance))
            _remove_state(settings)
        _remove_images()
    except (ConfigError, service.ServiceError, PaddockError, MountError) as error:
        failure(str(error))
        return 1
    except (DockerException, RequestException) as error:
        failure(f"the engine refused or did not answer: {error}")
        return 1
    return 0


def _require_unused(settings: Settings) -> None:
    """Raises: ServiceError if a control plane, possibly in a container, uses the directory."""
    with (settings.state_dir / "lock").open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise service.ServiceError(
                f"a control plane uses {settings.state_dir}: take it down first (`make down`)"
            ) from None


async def _remove_sandboxes(settings: Settings, instance: str) -> None:
    engine = service.connect(settings, instance)
    try:
        containers = await engine.list()
        for container in containers:
            await engine.remove(container.id)
        await engine.remove_open_network(settings.image)
    finally:
        await engine.close()
    step(f"sandboxes removed: {len(containers)}")


def _remove_state(settings: Settings) -> None:
    """Removes the directory only if it holds an instance id and nothing is mounted in it."""
    state = str(settings.state_dir)
    for mount in sorted(mounts_under(state), key=len, reverse=True):
        unmount(mount)
    environment = os.environ | {"PADDOCK_STATE_DIR": state}
    subprocess.run([UNSHARE, "undo"], env=environment, check=True, timeout=REMOVE_SECONDS)
    # rm does not recurse on the stack and does not cross into a mount.
    subprocess.run(
        ["rm", "-rf", "--one-file-system", "--", state], check=True, timeout=REMOVE_SECONDS
    )
    step(f"removed {state}")


def _remove_images() -> None:
    client = base.connect(ENGINE_SECONDS)
    try:
        ours = client.images(filters={"label": LABEL_INPUTS}) + client.images(base.LOCAL_BASE)
        removed = 0
        for image in ours:
            try:
                client.remove_image(image["Id"], force=False)
                removed += 1
            except APIError as error:
                if error.status_code not in (404, 409):  # already gone, or in use
                    raise
    finally:
        client.close()
    step(f"images removed: {removed}")


if __name__ == "__main__":
    sys.exit(main())
