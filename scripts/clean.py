"""Removes what this state directory's control plane created: sandboxes, mounts, network and files.

Workspaces are removed with the state directory. Images are removed unless something else uses them.
"""

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
from orchestrator.host.workspace.mounts import MountError
from orchestrator.operate.removal import RemovalError, let_go
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
        removed = let_go(settings)
        if removed is not None:
            step(f"sandboxes removed: {removed}")
            _remove_state(settings)
        _remove_images()
    except (ConfigError, service.ServiceError, RemovalError, PaddockError, MountError) as error:
        failure(str(error))
        return 1
    except (DockerException, RequestException) as error:
        failure(f"the engine refused or did not answer: {error}")
        return 1
    return 0


def _remove_state(settings: Settings) -> None:
    state = str(settings.state_dir)
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
