"""Whether the directories on the operator's list of mounts exist, and levels name no others."""

from collections.abc import Iterable

from orchestrator.ground.check import Check, ok, warning
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.rules.policy.levels import Level
from orchestrator.settings.operator_mounts import real_source
from orchestrator.settings.settings import Settings

MOUNT_LIST = "mount list"


def check_mount_list(settings: Settings, levels: Iterable[Level]) -> Check:
    """Sessions that request a missing directory are refused; others work."""
    problems = []
    for name, mount in settings.mounts.items():
        try:
            real_source(name, mount, settings.own_dirs, settings.docker_host)
        except EngineUnavailableError as error:
            problems.append(error.detail)
    for level in levels:
        unlisted = [name for name in level.mounts if name not in settings.mounts]
        if unlisted:
            problems.append(f"level {level.name} names {', '.join(unlisted)}, which the list lacks")
    if problems:
        remedy = "create the directories, or fix PADDOCK_MOUNTS and the level files"
        return warning(MOUNT_LIST, "; ".join(problems), remedy)
    count = len(settings.mounts)
    return ok(MOUNT_LIST, f"{count} listed, all exist" if count else "nothing is listed")
