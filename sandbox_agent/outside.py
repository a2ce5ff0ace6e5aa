"""Which paths outside of the workspace file operations may act on, by their text. Pure."""

TMP = "/tmp"  # noqa: S108 - the sandbox's own
# Views of the kernel and devices are no files of anybody.
_NO_FILES = ("/proc", "/sys", "/dev", "/run")


def is_file_of_image(path: str) -> bool:
    """Whether an absolute path is one that file operations may read."""
    return not any(path == each or path.startswith(each + "/") for each in _NO_FILES)


def outside(path: str, *, writes: bool) -> bool:
    """Whether operations may act on an absolute path outside of the workspace, by its text."""
    if writes:
        return path.startswith(TMP + "/")
    return is_file_of_image(path)
