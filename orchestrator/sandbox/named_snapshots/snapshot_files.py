"""The files of named snapshots, in a directory of their own. Every call blocks.

Each has one: the image of the workspace. A second one is that of the writable layer, if it is kept.
"""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.errors import CapacityExhaustedError, ConflictError, NotFoundError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.ground.store.directories import sync_names
from orchestrator.host.node.resources import free_bytes
from orchestrator.host.workspace import image_clone
from orchestrator.host.workspace.disk_image import DRAFT
from orchestrator.host.workspace.freezing import Freezes
from orchestrator.host.workspace.image_clone import Method, Progress, Saved
from orchestrator.host.workspace.image_copy import IMAGE, LAYER
from orchestrator.host.workspace.slots import make_slot

_SUFFIX = ".img"
_LAYER_SUFFIX = ".layer.img"
_RETRY_SECONDS = 60
_SECTOR = 512


class SavedSnapshot(NamedTuple):
    """The copies of a workspace, and of the layer of its session, if that is kept."""

    files: Saved
    layer: Saved | None

    @property
    def frozen_ms(self) -> float:
        """How long something in the session had to wait."""
        return self.files.frozen_ms + (0.0 if self.layer is None else self.layer.frozen_ms)


class KeptLayer(NamedTuple):
    """A layer that is to be kept: the directory of a sandbox's own, or a file; what it takes."""

    place: Path
    bytes: int


class SnapshotFiles:
    """Images of workspaces and layers; `reserve` bytes of the disk stay free."""

    def __init__(self, directory: Path, reserve: int) -> None:
        self._directory, self._reserve = directory, reserve

    def save(
        self,
        snapshot_id: str,
        slot: Path,
        progress: Callable[[int], object],
        freezes: Freezes,
        layer: Path | None = None,
    ) -> SavedSnapshot:
        """Copies the slot's image, as it is at one moment; if that fails, nothing is left.

        `layer` is the directory of a sandbox's layer, which is copied after that, or the file of
        one that nothing writes to. Raises: ConflictError, also if `freezes` are ended meanwhile;
        CapacityExhaustedError, OSError.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        done = 0

        def copied(count: int) -> None:
            progress(done + count)
            self._check_room()

        try:
            files = image_clone.save(slot, self._path(snapshot_id), copied, freezes)
            done = files.bytes
            saved = SavedSnapshot(files, self._save_layer(snapshot_id, layer, copied, freezes))
            FaultPoint.SNAPSHOT_COPIED.reached()
            sync_names(self._directory)
        except FileNotFoundError:
            self.remove(snapshot_id)
            raise ConflictError("the workspace or the sandbox is gone") from None
        except BaseException:
            self.remove(snapshot_id)
            raise
        return saved

    def _save_layer(
        self, snapshot_id: str, layer: Path | None, copied: Progress, freezes: Freezes
    ) -> Saved | None:
        target = self._layer(snapshot_id)
        if layer is None:
            return None
        if layer.is_dir():
            return image_clone.save(layer, target, copied, freezes)
        return image_clone.save_file(layer, target, copied)

    def place(self, snapshot_id: str, slot: Path) -> Method:
        """Makes a copy the image of a new slot.

        Raises: NotFoundError if it is gone; CapacityExhaustedError, OSError.
        """
        make_slot(slot)
        source = self._path(snapshot_id)
        try:
            method = image_clone.place(source, slot, slot / DRAFT, lambda _: self._check_room())
        except FileNotFoundError:
            raise _gone() from None
        return method

    def place_layer(self, snapshot_id: str, slot: Path) -> None:
        """Makes the layer the slot's own, which stays when the snapshot is removed.

        Nothing writes to it: each sandbox gets a copy. Raises: NotFoundError if it is gone;
        CapacityExhaustedError, OSError.
        """
        source, target = self._layer(snapshot_id), slot / LAYER
        target.unlink(missing_ok=True)
        try:
            os.link(source, target)
        except FileNotFoundError:
            raise _gone() from None

    def missing(self, snapshot_id: str, *, layer: bool) -> bool:
        """Whether it lacks a file; `layer`: it has a layer."""
        files = [self._path(snapshot_id), *([self._layer(snapshot_id)] if layer else [])]
        return not all(each.exists() for each in files)

    def paths(self, snapshot_id: str) -> list[Path]:
        """Where its files are, if they are there: all but the first need not be."""
        return [self._path(snapshot_id), self._layer(snapshot_id)]

    def remove(self, snapshot_id: str) -> None:
        """Removes the files, which may be gone. Raises: OSError."""
        for path in self.paths(snapshot_id):
            path.unlink(missing_ok=True)

    def remove_all_but(self, known: Collection[str]) -> int:
        """Removes the files that belong to no snapshot; returns their number. Raises: OSError."""
        if not self._directory.is_dir():
            return 0
        names = {f"{each}{suffix}" for each in known for suffix in (_SUFFIX, _LAYER_SUFFIX)}
        strays = [name for name in os.listdir(self._directory) if name not in names]
        for name in strays:
            (self._directory / name).unlink(missing_ok=True)
        return len(strays)

    def _path(self, snapshot_id: str) -> Path:
        return self._directory / f"{snapshot_id}{_SUFFIX}"

    def _layer(self, snapshot_id: str) -> Path:
        return self._directory / f"{snapshot_id}{_LAYER_SUFFIX}"

    def _check_room(self) -> None:
        if free_bytes(self._directory) < self._reserve:
            raise CapacityExhaustedError(
                "the host is short of disk space for a snapshot", retry_after=_RETRY_SECONDS
            )


def kept_layer(slot: Path, sandbox: Path | None) -> KeptLayer | None:
    """The layer in that directory; without one, what the next sandbox would begin with, if any.

    Raises: OSError.
    """
    place = slot / LAYER if sandbox is None else sandbox
    image = place if sandbox is None else sandbox / IMAGE
    return KeptLayer(place, image.stat().st_blocks * _SECTOR) if image.exists() else None


def _gone() -> NotFoundError:
    return NotFoundError("the snapshot is gone: it was removed meanwhile")
