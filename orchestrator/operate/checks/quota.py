"""The driver that limits workspaces' sizes on this host."""

import tempfile
from pathlib import Path

from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.ground.config_error import ConfigError
from orchestrator.host.node.mounts import existing
from orchestrator.host.workspace.quota import Choice, Quota
from orchestrator.host.workspace.storage import choice_for
from orchestrator.settings.settings import Settings

QUOTA = "workspace quota"
_REMEDY = (
    "install e2fsprogs and load the module loop (`modprobe loop`); in a container give it /dev "
    "and rules for 7:* and 10:237; or put the state directory on ext4 or XFS mounted with prjquota"
)


def check_quota(settings: Settings) -> Check:
    """Tries the drivers that the control plane would use; nothing is left behind."""
    try:
        with tempfile.TemporaryDirectory(
            dir=existing(settings.state_dir), prefix=".doctor-"
        ) as directory:
            return quota_check(choice_for(settings, Path(directory)))
    except ConfigError as error:
        return failure(QUOTA, str(error), f"{_REMEDY}, or set it to auto")
    except OSError as error:
        return warning(QUOTA, f"{settings.state_dir}: {error.strerror}", "run as root")


def quota_check(choice: Choice, *, reasons: bool = True) -> Check:
    """Judges the choice; the reasons against better drivers may contain host paths."""
    why = f": {'; '.join(choice.refusals)}" if reasons and choice.refusals else ""
    if choice.quota is Quota.IMAGE:
        return ok(QUOTA, "image: each new workspace is a file system of its own size")
    if choice.quota is Quota.PROJECT:
        detail = f"project: quotas of the host's file system, which hostile code can leave{why}"
        return warning(QUOTA, detail, _REMEDY)
    return warning(QUOTA, f"none: new workspaces are not held to their size{why}", _REMEDY)
