"""The flags of mounts in the sandbox, which its runtime may have lost."""

import os
from collections.abc import Mapping

_NAMES = {
    os.ST_RDONLY: "read-only",
    os.ST_NOSUID: "nosuid",
    os.ST_NODEV: "nodev",
    os.ST_NOEXEC: "noexec",
}


class LostFlagsError(Exception):
    """The runtime has mounted something without its flags."""


def check(mounts: Mapping[str, int]) -> None:
    """Raises: LostFlagsError if a mount lacks some of its flags, as in `statvfs`; OSError."""
    for place, flags in mounts.items():
        missing = flags & ~os.statvfs(place).f_flag
        if missing:
            names = ", ".join(name for flag, name in _NAMES.items() if missing & flag)
            raise LostFlagsError(f"the runtime has mounted {place} without {names}")
