"""The files of named snapshots, one for each, in a directory of their own. Every call blocks."""

import os
from collections.abc import Callable, Collection
from pathlib import Path

from orchestrator.ground.errors import CapacityExhaustedError, ConflictError, NotFoundError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.directories import sync_names
from orchestrator.host.node.resources import free_bytes
from orchestrator.host.workspace import image_clone
from orchestrator.host.workspace.disk_image import DRAFT
from orchestrator.host.workspace.freezing import Freezes
from orchestrator.host.workspace.image_clone import Method, Saved
from orchestrator.host.workspace.slots import make_slot

_SUFFIX = ".img"
_RETRY_SECONDS = 60


class SnapshotFiles:
    """Images of workspaces; `reserve` bytes of the disk stay free."""

    def __init__(self, directory: Path, reserve: int) -> None:
        self._directory, self._reserve = directory, reserve

    def save(
        self, snapshot_id: str, slot: Path, progress: Callable[[int], object], freezes: Freezes
    ) -> Saved:
        """Copies the slot's image, as it is at one moment; if that fails, nothing is left.

        Raises: ConflictError, also if `freezes` are ended meanwhile; CapacityExhaustedError,
        OSError.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        target = self._path(snapshot_id)

        def copied(count: int) -> None:
            progress(count)
            self._check_room()

        try:
            saved = image_clone.save(slot, target, copied, freezes)
            FaultPoint.SNAPSHOT_COPIED.reached()
            sync_names(self._directory)
        except FileNotFoundError:
            target.unlink(missing_ok=True)
            raise ConflictError("the workspace is gone") from None
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return saved

    def place(self, snapshot_id: str, slot: Path) -> Method:
        """Makes a copy the image of a new slot.

        Raises: NotFoundError if it is gone; CapacityExhaustedError, OSError.
        """
        make_slot(slot)
        source = self._path(snapshot_id)
        try:
            method = image_clone.place(source, slot, slot / DRAFT, lambda _: self._check_room())
        except FileNotFoundError:
            raise NotFoundError("the snapshot is gone: it was removed meanwhile") from None
        return method

    def missing(self, snapshot_id: str) -> bool:
        """Whether it has no file."""
        return not self._path(snapshot_id).exists()

    def remove(self, snapshot_id: str) -> None:
        """Removes the file, which may be gone. Raises: OSError."""
        self._path(snapshot_id).unlink(missing_ok=True)

    def remove_all_but(self, known: Collection[str]) -> int:
        """Removes the files that belong to no snapshot; returns their number. Raises: OSError."""
        if not self._directory.is_dir():
            return 0
        names = {f"{each}{_SUFFIX}" for each in known}
        strays = [name for name in os.listdir(self._directory) if name not in names]
        for name in strays:
            (self._directory / name).unlink(missing_ok=True)
        return len(strays)

    def _path(self, snapshot_id: str) -> Path:
        return self._directory / f"{snapshot_id}{_SUFFIX}"

    def _check_room(self) -> None:
        if free_bytes(self._directory) < self._reserve:
            raise CapacityExhaustedError(
                "the host is short of disk space for a snapshot", retry_after=_RETRY_SECONDS
            )
