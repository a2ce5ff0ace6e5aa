"""Disk images made in advance, so that a new workspace only has to take one."""

import re
import secrets
from pathlib import Path

from orchestrator.workspace import ext4

# The number of images kept per requested size, and in all. They are nearly empty, so together they
# take a few MiB.
READY = 4
MOST = 16
_NAME = re.compile(r"(\d+)-[0-9a-f]{16}\.img")


class PreparedImages:
    """A directory of complete images named by their size in bytes. Every call blocks."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def clean(self) -> None:
        """Removes incomplete images; no other process uses the directory. Raises: OSError."""
        self._directory.mkdir(mode=0o700, exist_ok=True)
        for path in self._directory.iterdir():
            if path.is_file() and not _NAME.fullmatch(path.name):
                path.unlink()

    def take(self, size: int, target: Path) -> bool:
        """Moves an image of that size to `target`; False if there is none. Raises: OSError."""
        for path in self._of(size):
            try:
                path.rename(target)
            except FileNotFoundError:  # another call took it
                continue
            return True
        return False

    def refill(self, size: int) -> None:
        """Makes images of that size until enough are ready, and removes surplus images.

        Raises: ImageError, CapacityExhaustedError, OSError.
        """
        while len(self._of(size)) < READY:
            name = secrets.token_hex(8)
            draft = self._directory / f"{name}.new"
            ext4.make(draft, size)
            draft.rename(self._directory / f"{size}-{name}.img")
        others = [path for path in self._directory.iterdir() if _NAME.fullmatch(path.name)]
        others = sorted(set(others) - set(self._of(size)), key=lambda path: path.lstat().st_mtime)
        for path in others[: max(0, len(others) + READY - MOST)]:
            path.unlink(missing_ok=True)

    def _of(self, size: int) -> list[Path]:
        return sorted(self._directory.glob(f"{size}-*.img"))
