"""The writable layer of a sandbox whose commands are root inside.

The image's files belong to the host's root, whom the sandbox's namespace does not have. So each of
the image's layers is shown by a mount of its own that maps root to the session's uid, and one
overlay puts a directory of an ext4 image of limited size on top of them. The layers stay unchanged.
It is made for each sandbox and gone with it, and begins empty, or as a copy of one that a snapshot
has kept. What a session wrote there is examined before a container starts on it.
"""

import os
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from orchestrator.ground.errors import ConflictError, PaddockError
from orchestrator.host.workspace import ext4, image_clone, loop, mounts
from orchestrator.host.workspace.freezing import thaw
from orchestrator.host.workspace.id_map import namespace
from orchestrator.host.workspace.image_copy import IMAGE, MOUNT_POINT
from sandbox_agent.decide.writable_places import LAYER

# The image and its mount point have the names that a slot's have, so they are copied as these are.
_LOWER, _MERGED, _DRAFT = "lower", "merged", "draft"
_UPPER, _WORK = "upper", "work"
# Beside the upper directory, where no session comes: the image over which it was written.
_OVER = "over"
_MOST_NAME = 256
# The engine's runtime reads /etc/passwd and others as a whole.
_MOST_BYTES = 1024 * 1024
_ROOT = 0
_FILE_SYSTEM = "discard,noinit_itable,errors=remount-ro"
# Its marks are of the kind that only the host's root can set, so a session can't forge one.
_OVERLAY = "index=off,xino=off,metacopy=off,redirect_dir=on"
# Ids that an image's files may have besides root. They appear as they are: nobody in the sandbox.
_OTHERS = 65_535
_TRIAL_UID = 65_537
_TRIAL = "sha256:trial"


class Start(NamedTuple):
    """What a layer begins with, which a session wrote: the image of one that a snapshot kept.

    None of `directories` may be anything else, nor `files`, and nothing may be `absent`: absolute
    paths that the engine or the agent use before the sandbox's own filters hold. Directories above
    others come first.
    """

    image: Path
    directories: Sequence[str]
    files: Collection[str]
    absent: Collection[str]


def make(
    directory: Path,
    layers: Sequence[str],
    over: str,
    uid: int,
    size: int,
    start: Start | None = None,
) -> list[str]:
    """Makes the layer in `directory`, which does not exist; returns what it covers of the image.

    `layers` are the directories of the layers of the image with the id `over`, the uppermost first.
    `size` is in bytes. Raises: MountError, ImageError, CapacityExhaustedError, OSError;
    ConflictError if it can't begin as `start`; `remove` then removes the rest.
    """
    for place in (directory, *(directory / name for name in (MOUNT_POINT, _LOWER, _MERGED))):
        place.mkdir(mode=0o700)
    if start is None:
        ext4.make(directory / IMAGE, size)
    else:
        _copy(start.image, directory, size)
    files = _mounted(directory, over, uid, new=start is None)
    with (
        _shown(layers, uid, directory / _LOWER) as shown,
        mounts.opened(files / _UPPER, files / _WORK) as (upper, work),
    ):
        places = {"lowerdir": shown, "upperdir": (upper,), "workdir": (work,)}
        options = [
            f"{name}={':'.join(f'/proc/self/fd/{each}' for each in handles)}"
            for name, handles in places.items()
        ]
        try:
            mounts.mount_device(
                "overlay", str(directory / _MERGED), "overlay", ",".join((*options, _OVERLAY))
            )
        except mounts.MountError as error:
            raise mounts.MountError(
                f"the image can have no writable layer, which needs Linux 5.19: {error.detail}"
            ) from error
    if start is not None:
        _examine(directory, start)
    return [path for path in LAYER if _is_directory(covered(directory, path))]


def _copy(source: Path, directory: Path, size: int) -> None:
    """Makes a copy the layer's image, and fits it. Raises: as `make` does."""
    image, draft = directory / IMAGE, directory / _DRAFT
    image_clone.place(source, directory, draft, lambda _: None)
    if ext4.measure(image).size != ext4.whole_blocks(size):
        ext4.resize(image, size, draft)
    found = ext4.measure(image).size
    if found > size:
        raise ConflictError(
            f"the writable layer of the snapshot needs {found} bytes, and the level's root_bytes "
            f"are {size}: have the operator raise them"
        )


def _mounted(directory: Path, over: str, uid: int, *, new: bool) -> Path:
    """Where the layer's file system is, whose files are shown as the user's.

    A copy keeps the uid of the first session on the disk. Raises: as `make` does.
    """
    files = directory / MOUNT_POINT
    with loop.attached(directory / IMAGE) as device:
        mounts.mount_device(device, str(files), "ext4", _FILE_SYSTEM)
    if new:
        for name in (_UPPER, _WORK):
            (files / name).mkdir(mode=0o755)
        os.chown(files / _UPPER, uid, uid)
        (files / _OVER).write_text(over)
        return files
    with open(files / _OVER) as file:
        found = file.read(_MOST_NAME)
    if found != over:
        raise ConflictError(
            f"the writable layer of the snapshot was written over image {found}, which the "
            f"session's image is not any more: it is {over}. Take the snapshot again"
        )
    stored = (files / _UPPER).lstat().st_uid
    if stored != uid:
        with namespace({_ROOT: _ROOT, stored: uid}, unchanged=_OTHERS) as users:
            mounts.remount_as(str(files), users)
    return files


def _examine(directory: Path, start: Start) -> None:
    """Nothing that a session wrote may move a mount, or be loaded or waited for at the start.

    Raises: ConflictError.
    """
    for path in start.directories:
        mode = _mode(directory, path)
        if mode is not None and not stat.S_ISDIR(mode):
            raise _refused(f"{path} is no directory, but a link or a file")
    for path in start.files:
        mode = _mode(directory, path)
        if mode is not None and not stat.S_ISREG(mode):
            raise _refused(f"{path} is no file")
        if mode is not None and covered(directory, path).lstat().st_size > _MOST_BYTES:
            raise _refused(f"{path} has more than {_MOST_BYTES} bytes")
    for path in start.absent:
        if _mode(directory, path) is not None:
            raise _refused(f"it has {path}")


def _mode(directory: Path, path: str) -> int | None:
    """What there is; the directories above were examined. Raises: OSError."""
    try:
        return covered(directory, path).lstat().st_mode
    except FileNotFoundError:
        return None


def _refused(why: str) -> ConflictError:
    return ConflictError(
        f"the writable layer of the snapshot can't be used: {why}; remove it, and take the "
        "snapshot again"
    )


def covered(directory: Path, path: str) -> Path:
    """Where the layer has what the image has at the absolute `path`."""
    return directory / _MERGED / path.lstrip("/")


def remove(directory: Path) -> None:
    """Unmounts the layer and removes its files; may be called again. Raises: MountError, OSError.

    What is still in use by a container that is about to end is freed with it.
    """
    if not directory.exists():
        return
    thaw_left(directory)  # a frozen file system would outlive its mount
    for name in (_MERGED, _LOWER, MOUNT_POINT):
        mounts.unmount(str(directory / name))
    for name in (IMAGE, _DRAFT):
        (directory / name).unlink(missing_ok=True)
    for name in (_MERGED, _LOWER, MOUNT_POINT):
        if (directory / name).exists():
            (directory / name).rmdir()
    directory.rmdir()


def thaw_left(directory: Path) -> None:
    """Thaws the layer, if there is one that a copy has left frozen. Raises: OSError."""
    files = directory / MOUNT_POINT
    if files.is_dir() and mounts.is_mounted(str(files)):
        thaw(files)


def refusal(directory: Path, layers: Sequence[str]) -> str | None:
    """Why images can have no writable layer here; None if one was made in `directory` and removed.

    `directory` does not exist, or is what an attempt has left.
    """
    missing = ext4.missing_tools()
    if missing:
        return f"{', '.join(missing)} not found: install e2fsprogs"
    try:
        remove(directory)
        try:
            make(directory, layers, _TRIAL, _TRIAL_UID, ext4.SMALLEST_BYTES)
        finally:
            remove(directory)
    except PaddockError as error:
        return error.detail
    except OSError as error:
        return loop.refusal(error) or f"a writable layer can't be made: {error.strerror}"
    return None


def _is_directory(path: Path) -> bool:
    """Whether it is one itself: what merely leads to another has no mount of its own."""
    return path.is_dir() and not path.is_symlink()


@contextmanager
def _shown(layers: Sequence[str], uid: int, point: Path) -> Iterator[tuple[int, ...]]:
    """The layers with root's files as the user's, as descriptors. Raises: MountError.

    They are mounted one on the other at `point` meanwhile: before Linux 6.15, an overlay takes
    nothing that is mounted nowhere.
    """
    if not layers:
        raise mounts.MountError(
            "the image can have no writable layer: the engine does not say where its layers are; "
            "the storage driver overlay2 does"
        )
    with ExitStack() as stack:
        users = stack.enter_context(namespace({0: uid}, unchanged=_OTHERS))
        stack.callback(mounts.unmount, str(point))
        handles = []
        for layer in layers:
            try:
                tree = mounts.cloned_as(layer, users)
                stack.callback(os.close, tree)
                with mounts.opened(point) as (target,):
                    mounts.attach(tree, target)
            except FileNotFoundError as error:
                raise mounts.MountError(
                    "the image can have no writable layer: the engine's directories are not "
                    "visible to the control plane, which must run beside the engine, in no "
                    "container"
                ) from error
            except OSError as error:
                raise mounts.explained("an image's layer can't be mounted", error) from error
            handles.append(tree)
        yield tuple(handles)
