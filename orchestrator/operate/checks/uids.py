"""Whether the uids of workspaces are this instance's alone."""

import os

from orchestrator.ground.check import Check, failure, ok, warning
from orchestrator.ground.store import directories
from orchestrator.host.workspace.uid_range import UidRange, is_free
from orchestrator.settings.settings import Settings

UIDS = "workspace uids"
_SHARED = "close these sessions and purge their workspaces, then create them again"
_ALONE = "if another instance runs on this machine, set another PADDOCK_UID_BASE for each"


def range_check(uids: UidRange) -> Check:
    """Judges the range of a running control plane."""
    has = f"workspaces have the uids {uids.base} to {uids.last}"
    if uids.unlocked is not None:
        return warning(UIDS, f"{has}; that others use none can't be ensured", _ALONE)
    if uids.shared:
        detail = f"{uids.shared} earlier workspaces have uids that another instance uses, too"
        return warning(UIDS, f"{has}; {detail}", _SHARED)
    return ok(UIDS, f"{has}, and no other instance on this machine")


def check_uids(settings: Settings) -> Check:
    """Whether a control plane could have its range of uids if it were started now. Blocks."""
    base, count = settings.uid_base, settings.uid_count
    if base is None:
        return ok(UIDS, f"a free range of {count} uids is chosen at each start")
    if is_free(base, count) or runs(settings):
        return ok(UIDS, f"workspaces have the uids {base} to {base + count - 1}")
    detail = f"another instance on this machine uses some of the uids {base} to {base + count - 1}"
    return failure(UIDS, detail, "set another PADDOCK_UID_BASE, or leave it out")


def runs(settings: Settings) -> bool:
    """Whether a control plane uses the state directory, and so the range. Blocks."""
    try:
        os.close(directories.lock(settings.state_dir))
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
