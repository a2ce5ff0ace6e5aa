"""What the agent looks at before it confines commands: the sandbox's mounts."""

import os
from collections.abc import Mapping

from sandbox_agent.decide.protocol import WORKSPACE_DIR
from sandbox_agent.enforce.profile import ConfinementError

_FLAGS = {
    os.ST_RDONLY: "read-only",
    os.ST_NOSUID: "nosuid",
    os.ST_NODEV: "nodev",
    os.ST_NOEXEC: "noexec",
}


def check_flags(mounts: Mapping[str, int]) -> None:
    """Raises: ConfinementError unless the mounts have these flags."""
    for place, flags in mounts.items():
        try:
            lost = flags & ~os.statvfs(place).f_flag
        except OSError as error:
            raise ConfinementError(f"{place}: {error.strerror}") from None
        if lost:
            names = ", ".join(name for flag, name in _FLAGS.items() if lost & flag)
            raise ConfinementError(f"the runtime has mounted {place} without {names}")


def check_workspace(uid: int) -> None:
    """Raises: ConfinementError unless the session's workspace is mounted: only it has its uid."""
    try:
        mounted = os.stat(WORKSPACE_DIR).st_uid == uid
    except OSError:
        mounted = False
    if not mounted:
        raise ConfinementError("the session's workspace is not mounted")
