"""The uids of an instance's workspaces, which no other instance on the same machine uses.

The kernel counts processes per uid, so two workspaces with one uid would share a limit
(`RLIMIT_NPROC`: "Cannot fork"). Ranges are bytes of one file that are locked: the kernel compares
them, and releases them when their process ends. An instance's id decides which range it tries
first, so that instances that can't see each other's file, as in containers, rarely share one.
"""

import errno
import fcntl
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.file_handles import opened
from orchestrator.settings.groups.capacity import FIRST_UID

_RANGES = 1000
# The end of the ranges that are chosen automatically.
END_UID = 1 << 31
_LOCKS = Path("/run/paddock-uids.lock")


@dataclass(frozen=True, slots=True)
class UidRange:
    """`count` uids from `base` on; `unlocked` says why others may use them, too.

    `shared` is the number of existing workspaces whose uids another instance uses, too; they keep
    their uids. The owner calls `close`.
    """

    base: int
    count: int
    unlocked: str | None = None
    shared: int = 0
    descriptor: int | None = None

    @property
    def last(self) -> int:
        """The last uid."""
        return self.base + self.count - 1

    def close(self) -> None:
        """Releases the range."""
        if self.descriptor is not None:
            os.close(self.descriptor)


def candidates(count: int, instance: str) -> list[int]:
    """The first uids of the ranges of that size, the instance's own first. Pure."""
    number = max(1, min(_RANGES, (END_UID - FIRST_UID) // count))
    own = int(instance, 16) % number
    return [FIRST_UID + (own + index) % number * count for index in range(number)]


def claim(
    base: int | None, count: int, instance: str, kept: Iterable[int], path: Path = _LOCKS
) -> UidRange:
    """Takes a range for this process; `kept` are the uids of workspaces that exist.

    `base` None: the first free range. Raises: ConfigError if another process has the range at
    `base`, or all of them.
    """
    bases = candidates(count, instance) if base is None else [base]
    try:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        return UidRange(bases[0], count, f"{path}: {error.strerror}")
    try:
        found = next((each for each in bases if _locked(descriptor, each, count)), None)
        if found is None:
            raise ConfigError(_taken(bases[0], count, explicit=base is not None))
        others = {uid for uid in kept if not found <= uid < found + count}
        shared = sum(not _locked(descriptor, uid, 1) for uid in others)
    except BaseException:
        os.close(descriptor)
        raise
    return UidRange(found, count, None, shared, descriptor)


def is_free(base: int, count: int, path: Path = _LOCKS) -> bool:
    """Whether no process is known to have any of these uids."""
    try:
        with opened(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW) as descriptor:
            return _locked(descriptor, base, count)
    except OSError:
        return True


def _locked(descriptor: int, base: int, count: int) -> bool:
    """Locks these bytes for the open file, not the process. Raises: OSError."""
    wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, base, count, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def _taken(base: int, count: int, *, explicit: bool) -> str:
    if explicit:
        return (
            f"PADDOCK_UID_BASE: another control plane on this machine uses some of the uids {base} "
            f"to {base + count - 1}: set another first uid, or leave it out to have one chosen"
        )
    return "PADDOCK_UID_COUNT: other control planes on this machine use all ranges: set a lower one"
