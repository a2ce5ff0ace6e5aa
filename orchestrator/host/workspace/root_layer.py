"""The writable layer of a sandbox whose commands are root inside.

The image's files belong to the host's root, whom the sandbox's namespace does not have. So each of
the image's layers is shown by a mount of its own that maps root to the session's uid, and one
overlay puts a directory of an ext4 image of limited size on top of them. The layers stay unchanged.
It is made anew for each sandbox and gone with it: a container never starts on what a session wrote.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from orchestrator.ground.errors import PaddockError
from orchestrator.host.workspace import ext4, loop, mounts
from orchestrator.host.workspace.id_map import namespace
from sandbox_agent.decide.writable_places import LAYER

_IMAGE, _FILES, _LOWER, _MERGED = "root.img", "files", "lower", "merged"
_FILE_SYSTEM = "discard,noinit_itable,errors=remount-ro"
# Its marks are of the kind that only the host's root can set, so a session can't forge one.
_OVERLAY = "index=off,xino=off,metacopy=off,redirect_dir=on"
# Ids that an image's files may have besides root. They appear as they are: nobody in the sandbox.
_OTHERS = 65_535
_TRIAL_UID = 65_537


def make(directory: Path, layers: Sequence[str], uid: int, size: int) -> list[str]:
    """Makes the layer in `directory`, which does not exist; returns what it covers of the image.

    `layers` are the directories of the image's layers, the uppermost first. `size` is in bytes.
    Raises: MountError, ImageError, CapacityExhaustedError, OSError; `remove` then removes the rest.
    """
    for place in (directory, *(directory / name for name in (_FILES, _LOWER, _MERGED))):
        place.mkdir(mode=0o700)
    files, merged = directory / _FILES, directory / _MERGED
    ext4.make(directory / _IMAGE, size)
    with loop.attached(directory / _IMAGE) as device:
        mounts.mount_device(device, str(files), "ext4", _FILE_SYSTEM)
    for name in ("upper", "work"):
        (files / name).mkdir(mode=0o755)
    os.chown(files / "upper", uid, uid)
    with (
        _shown(layers, uid, directory / _LOWER) as shown,
        mounts.opened(files / "upper", files / "work") as (upper, work),
    ):
        places = {"lowerdir": shown, "upperdir": (upper,), "workdir": (work,)}
        options = [
            f"{name}={':'.join(f'/proc/self/fd/{each}' for each in handles)}"
            for name, handles in places.items()
        ]
        try:
            mounts.mount_device("overlay", str(merged), "overlay", ",".join((*options, _OVERLAY)))
        except mounts.MountError as error:
            raise mounts.MountError(
                f"the image can have no writable layer, which needs Linux 5.19: {error.detail}"
            ) from error
    return [path for path in LAYER if _is_directory(covered(directory, path))]


def covered(directory: Path, path: str) -> Path:
    """Where the layer has what the image has at the absolute `path`."""
    return directory / _MERGED / path.lstrip("/")


def remove(directory: Path) -> None:
    """Unmounts the layer and removes its files; may be called again. Raises: MountError, OSError.

    What is still in use by a container that is about to end is freed with it.
    """
    if not directory.exists():
        return
    for name in (_MERGED, _LOWER, _FILES):
        mounts.unmount(str(directory / name))
    (directory / _IMAGE).unlink(missing_ok=True)
    for name in (_MERGED, _LOWER, _FILES):
        if (directory / name).exists():
            (directory / name).rmdir()
    directory.rmdir()


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
            make(directory, layers, _TRIAL_UID, ext4.SMALLEST_BYTES)
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
