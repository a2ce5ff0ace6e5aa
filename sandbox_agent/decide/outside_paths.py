"""Which paths outside the workspace file operations may use, by their text alone. Pure."""

from collections.abc import Iterable

TMP = "/tmp"  # noqa: S108 - private to the sandbox
# Views of the kernel and devices are not files of the image.
_NO_FILES = ("/proc", "/sys", "/dev", "/run")


def is_file_of_image(path: str) -> bool:
    """Whether file operations may read an absolute path."""
    return not any(path == each or path.startswith(each + "/") for each in _NO_FILES)


def containing(path: str, volumes: Iterable[str]) -> str | None:
    """The volume that an absolute path, which has no `..`, is in by its text; None if in none."""
    return next((each for each in volumes if path == each or path.startswith(f"{each}/")), None)


def outside(path: str, *, writes: bool) -> bool:
    """Whether file operations may use an absolute path outside the workspace, by its text."""
    if writes:
        return path.startswith(TMP + "/")
    return is_file_of_image(path)
