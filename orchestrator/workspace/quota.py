"""What holds a workspace to its size: the interface of the drivers, and which one is used.

| driver    | what holds                                | where                                  |
|-----------|-------------------------------------------|----------------------------------------|
| `image`   | a file system of its own, in a file       | any host with loop devices             |
| `project` | the host's file system, by its quotas     | ext4 or XFS mounted with `prjquota`    |
| `none`    | nothing                                   | anywhere                               |

`image` comes first: it holds by itself. A file's owner may give it to another project, so
project quotas also rest on the filter of system calls that commands run under. What a
workspace was made with it keeps.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal, Protocol

from orchestrator.config.errors import ConfigError


class Quota(StrEnum):
    """The drivers, the best first."""

    IMAGE = "image"
    PROJECT = "project"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """How full a workspace is, in bytes."""

    used_bytes: int
    limit_bytes: int


class Driver(Protocol):
    """Keeps workspaces in slots, directories that only root can enter. Every call blocks."""

    def data(self, slot: Path) -> Path:
        """Where the workspace's own files are; no call."""

    def open(self, slot: Path, uid: int, size: int) -> Path:
        """Makes the slot where it is missing, and holds it to `size` bytes; returns its data.

        No command runs in the workspace meanwhile.
        Raises: PaddockError, OSError: what was there is as it was.
        """

    def mount(self, slot: Path) -> None:
        """Makes the data of an existing slot visible again. Raises: PaddockError, OSError."""

    def usage(self, slot: Path, uid: int) -> DiskUsage | None:
        """How full it is; None where nothing holds it. Raises: PaddockError, OSError."""

    def remove(self, slot: Path, uid: int) -> None:
        """Removes the slot and everything in it; one that is gone is fine.

        Raises: PaddockError, OSError: some of it is left; it may be called again.
        """


@dataclass(frozen=True, slots=True)
class Choice:
    """The driver of new workspaces, and why not each of the better ones."""

    quota: Quota
    refusals: tuple[str, ...] = ()


def choose(
    setting: Literal["auto", "image", "project", "none"],
    refusals: Iterable[tuple[Quota, Callable[[], str | None]]],
) -> Choice:
    """The driver that the setting means on this host.

    `refusals`: for each driver in order, what says why it can't be used (None: it can).
    Raises: ConfigError where the one that the setting names can't.
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
