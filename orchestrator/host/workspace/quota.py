"""The interface of the drivers that limit a workspace's size, and the choice between them.

| driver    | what enforces the size                    | where it works                         |
|-----------|-------------------------------------------|----------------------------------------| |
`image`   | the workspace's own file system, in a file | any host with loop devices            | |
`project` | quotas of the host's file system          | ext4 or XFS mounted with `prjquota`    | |
`none`    | nothing                                   | anywhere                               |

`image` comes first because it needs nothing else to be enforced. A file's owner may assign it to
another project, so project quotas also depend on the system call filter of commands. A workspace
keeps the driver that it was created with.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from orchestrator.ground.config_error import ConfigError


class Quota(StrEnum):
    """The drivers, best first."""

    IMAGE = "image"
    PROJECT = "project"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """A workspace's usage and size, in bytes."""

    used_bytes: int
    limit_bytes: int


class Driver(Protocol):
    """Keeps workspaces in slots: directories that only root can enter. Every call blocks."""

    def data(self, slot: Path) -> Path:
        """The directory of the workspace's own files; does no I/O."""

    def open(self, slot: Path, uid: int, size: int) -> Path:
        """Creates a missing slot, limits it to `size` bytes, and returns its data directory.

        No command runs in the workspace meanwhile. Raises: PaddockError, OSError; an existing
        workspace is then unchanged.
        """

    def mount(self, slot: Path, uid: int) -> None:
        """Makes an existing slot's data visible again, as files of `uid`.

        Raises: PaddockError, OSError.
        """

    def count(self, directory: Path, uid: int) -> None:
        """Counts an empty directory beside the data, and what is created in it, for its size.

        Raises: OSError.
        """

    def usage(self, slot: Path, uid: int) -> DiskUsage | None:
        """The slot's usage; None if it has no size limit. Raises: PaddockError, OSError."""

    def remove(self, slot: Path, uid: int) -> None:
        """Removes the slot with everything in it; succeeds if it is already gone.

        Raises: PaddockError, OSError if part of it remains; the call may be repeated.
        """


@dataclass(frozen=True, slots=True)
class Choice:
    """The driver of new workspaces, and why each better driver was not chosen."""

    quota: Quota
    refusals: tuple[str, ...] = ()


def choose(
    setting: Literal["auto", "image", "project", "none"],
    refusals: Iterable[tuple[Quota, Callable[[], str | None]]],
) -> Choice:
    """Chooses the driver that the setting selects on this host.

    `refusals` gives, per driver in order, a function that returns why it can't be used (None: it
    can). Raises: ConfigError if the driver that the setting names can't be used.
    """
    if setting == "none":
        return Choice(Quota.NONE, ("it is set so",))
    found: list[str] = []
    for quota, refusal in refusals:
        if setting not in ("auto", quota):
            continue
        why = refusal()
        if why is None:
            return Choice(quota, tuple(found))
        found.append(f"{quota}: {why}")
    if setting != "auto":
        raise ConfigError(f"PADDOCK_WORKSPACE_QUOTA: {'; '.join(found)}")
    return Choice(Quota.NONE, tuple(found))
