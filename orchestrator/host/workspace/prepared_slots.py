"""Slots made in advance, empty or with files, so that a new workspace only has to take one."""

import errno
import logging
import re
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from orchestrator.ground.errors import PaddockError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.workspace.disk_image import RELEASE_SECONDS, DiskImages

log = logging.getLogger(__name__)

# The number of slots kept per requested size, and in all. They are nearly empty, so together they
# take a few MiB; each has a mount and a loop device.
READY = 4
MOST = 16
_NAME = re.compile(r"(\d+)-[0-9a-f]{16}")
_WITH_FILES = re.compile(r"([a-z]+-[0-9a-f]{16})-[0-9a-f]{16}")


class PreparedSlots:
    """A directory of complete, mounted slots. Every call blocks.

    Empty ones are named by their size in bytes, others by the id of what their files are copies of.
    Mounts move with their slots. The slots last as long as the process that made them.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._images = DiskImages()

    def clear(self) -> None:
        """Removes all slots, also those of a killed process; no other process uses the directory.

        A slot that can't be removed is logged, and never taken. Raises: OSError.
        """
        self._directory.mkdir(mode=0o700, exist_ok=True)
        # All are unmounted before the first is removed, so that they share one wait for whoever
        # else on the host still holds them.
        drafts: list[Path | None] = []
        for path in list(self._directory.iterdir()):
            if not path.is_dir():  # earlier versions kept images only
                path.unlink()
                continue
            with _logged(path):
                drafts.append(self._withdraw(path))
        until = time.monotonic() + RELEASE_SECONDS
        for withdrawn in filter(None, drafts):
            with _logged(withdrawn):
                # It is nearly empty: whatever still uses it takes no space.
                self._images.discard(withdrawn, max(0.0, until - time.monotonic()))

    def take(self, kind: int | str, slot: Path) -> bool:
        """Moves a slot of that size, or with those files, to `slot`, which is empty or missing.

        Returns False if there is none. Raises: OSError.
        """
        for path in self._of(kind):
            try:
                path.rename(slot)
            except FileNotFoundError:  # another call took it
                continue
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                return False  # what a failed attempt left is used
            return True
        return False

    def refill(self, size: int) -> None:
        """Makes slots of that size until enough are ready, and removes surplus ones.

        Raises: ImageError, MountError, CapacityExhaustedError, OSError.
        """
        while len(self._of(size)) < READY:
            self._make(size, lambda draft: self._images.create(draft, size))
        others = [path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)]
        others = sorted(set(others) - set(self._of(size)), key=lambda path: path.lstat().st_mtime)
        for path in others[: max(0, len(others) + READY - MOST)]:
            if (surplus := self._withdraw(path)) is not None:
                self._images.discard(surplus)

    def make_filled(self, files: str, fill: Callable[[Path], object]) -> None:
        """Makes a slot with those files; `fill` puts the image that has them into a new slot.

        Raises: MountError, OSError, and the errors of `fill`.
        """

        def make(draft: Path) -> None:
            fill(draft)
            self._images.mount(draft)
            FaultPoint.AHEAD_FILLED.reached()

        self._make(files, make)

    def keep_filled(self, most: Mapping[str, int]) -> Counter[str]:
        """Removes slots with other files, and those that are more; returns how many are left.

        Raises: MountError, OSError.
        """
        left: Counter[str] = Counter()
        for path in list(self._directory.iterdir()):
            named = _WITH_FILES.fullmatch(path.name)
            if named is None:
                continue
            if left[named[1]] < most.get(named[1], 0):
                left[named[1]] += 1
            elif (withdrawn := self._withdraw(path)) is not None:
                self._images.discard(withdrawn)
        return left

    def _make(self, kind: int | str, make: Callable[[Path], object]) -> None:
        name = secrets.token_hex(8)
        draft = self._directory / f"{name}.new"
        try:
            make(draft)
        except BaseException:
            self._images.discard(draft)
            raise
        draft.rename(self._directory / f"{kind}-{name}")

    def _withdraw(self, path: Path) -> Path | None:
        """Unmounts the slot under a name that nobody takes, and returns that; None if it is gone.

        Raises: MountError, OSError.
        """
        draft = path.with_suffix(".new")
        try:
            path.rename(draft)
        except FileNotFoundError:
            return None
        self._images.unmount(draft)
        return draft

    def _of(self, kind: int | str) -> list[Path]:
        pattern = _WITH_FILES if isinstance(kind, str) else _NAME
        found = self._directory.glob(f"{kind}-*")
        return sorted(path for path in found if pattern.fullmatch(path.name))


@contextmanager
def _logged(path: Path) -> Iterator[None]:
    try:
        yield
    except (PaddockError, OSError) as error:
        log.warning("%s, made ahead for a workspace, is not removed: %s", path, error)
