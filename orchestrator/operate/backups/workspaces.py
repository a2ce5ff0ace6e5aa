"""Workspaces in a backup: the images of their slots, packed. Every call blocks."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.store import directories
from orchestrator.host.workspace import mounts, slots
from orchestrator.host.workspace.image_copy import IMAGE, copy_image
from orchestrator.host.workspace.paths import slot_path, slots_path
from orchestrator.host.workspace.quota import Quota
from orchestrator.operate.backups.backup_file import BackupError, BackupWriter, Report

SLOTS = "slots"
_NO_IMAGE = "it is a plain directory, without an image"


class AddedWorkspaces(NamedTuple):
    """How many workspaces are in the backup, and by id why others are not."""

    number: int
    left_out: dict[str, str]


def add_workspaces(
    writer: BackupWriter, database: Path, state_dir: Path, scratch: Path, report: Report
) -> AddedWorkspaces:
    """Adds the workspaces that the backup's `database` names, each as it is at one moment.

    `scratch` is a file that this makes and removes. Raises: OSError, sqlite3.Error.
    """
    with closing(sqlite3.connect(database)) as connection:
        found = slots.kept(connection)
    number, left_out = 0, {}
    for place, workspace in enumerate(found, 1):
        report(f"workspace {place} of {len(found)}: {workspace.id}")
        if workspace.quota is not Quota.IMAGE:
            left_out[workspace.id] = _NO_IMAGE
            continue
        try:
            copy_image(slot_path(state_dir, workspace.slot), scratch)
            writer.add_sparse(f"{SLOTS}/{workspace.slot}/{IMAGE}", scratch)
            number += 1
        except PaddockError as error:
            left_out[workspace.id] = error.detail
        except FileNotFoundError:
            left_out[workspace.id] = "it was never used, or is gone by now"
        finally:
            scratch.unlink(missing_ok=True)
    return AddedWorkspaces(number, left_out)


def check_slots(draft: Path, database: sqlite3.Connection) -> int:
    """Returns the number of slots below `draft`. Raises: BackupError if one is no workspace's."""
    if not (draft / SLOTS).exists():
        return 0
    known = {each.slot for each in slots.kept(database) if each.quota is Quota.IMAGE}
    names = os.listdir(draft / SLOTS)
    for name in names:
        if name not in known or os.listdir(draft / SLOTS / name) != [IMAGE]:
            raise BackupError(f"it is damaged: {SLOTS}/{name} is no workspace's")
    return len(names)


def settle_slots(complete: Path, state_dir: Path, keep: Callable[[], Path]) -> None:
    """Moves the slots below `complete` into their place; slots that are there go below `keep()`.

    It may be repeated. Raises: OSError, MountError.
    """
    slots_path(state_dir).mkdir(mode=0o700, exist_ok=True)
    for name in sorted(os.listdir(complete)):
        target = slot_path(state_dir, name)
        if target.exists():
            # What is mounted in it moves with it, and would otherwise stay mounted there.
            mount = target / "fs"
            if mount.is_dir() and mounts.is_mounted(str(mount)):
                mounts.unmount(str(mount))
            kept = keep() / SLOTS
            kept.mkdir(mode=0o700, exist_ok=True)
            target.rename(kept / name)
        (complete / name).rename(target)
    directories.sync(slots_path(state_dir))
