"""Whether sessions in proposal mode can stage their changes on this host."""

import tempfile
from pathlib import Path

from orchestrator.ground.check import Check, ok, warning
from orchestrator.ground.errors import PaddockError
from orchestrator.host.node.mounts import existing
from orchestrator.host.workspace import ext4, staging_area
from orchestrator.host.workspace.disk_image import DiskImages
from orchestrator.host.workspace.quota import Quota
from orchestrator.host.workspace.storage import choice_for
from orchestrator.settings.settings import Settings

STAGING = "proposal mode"
_REMEDY = (
    "run as root, or give the control plane's container DAC_OVERRIDE and FOWNER, too; other "
    "sessions are not affected"
)


def check_staging(settings: Settings) -> Check:
    """Tries an overlay where workspaces are; nothing is left behind."""
    try:
        with tempfile.TemporaryDirectory(
            dir=existing(settings.state_dir), prefix=".doctor-"
        ) as name:
            why = _refusal(settings, Path(name))
    except PaddockError as error:
        why = error.detail
    except OSError as error:
        why = f"{settings.state_dir}: {error.strerror}"
    if why is None:
        return ok(STAGING, "sessions can stage their changes")
    return warning(STAGING, f"sessions in proposal mode are refused: {why}", _REMEDY)


def _refusal(settings: Settings, directory: Path) -> str | None:
    if choice_for(settings, directory).quota is not Quota.IMAGE:
        return staging_area.refusal(directory)
    images, slot = DiskImages(), directory / "slot"
    try:
        data = images.open(slot, 0, ext4.SMALLEST_BYTES)
        return staging_area.refusal(data.parent)
    finally:
        images.remove(slot, 0)
