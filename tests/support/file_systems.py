"""File systems of a kind, each in a file of its own."""

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.limits import PROGRAM_SECONDS


def available(kind: str) -> bool:
    """Whether this host can make and mount that kind."""
    known = Path("/proc/filesystems").read_text().split()
    return kind in known and shutil.which(f"mkfs.{kind}") is not None


@contextmanager
def file_system(kind: str, size: int) -> Iterator[Path]:
    """An empty one, mounted."""
    with tempfile.TemporaryDirectory(prefix="paddock-fs-") as directory:
        disk, point = Path(directory, "disk"), Path(directory, "fs")
        point.mkdir()
        with disk.open("wb") as file:
            file.truncate(size)
        run(f"mkfs.{kind}", "-q", str(disk))
        run("mount", "-o", "loop", str(disk), str(point))
        try:
            yield point
        finally:
            run("umount", str(point))


def run(*program: str) -> None:
    """Runs it to its end. Raises: CalledProcessError."""
    subprocess.run(program, check=True, capture_output=True, timeout=PROGRAM_SECONDS)
