"""Looks up commands along a fixed path outside the workspace."""

import os

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find_program(name: str) -> str | None:
    """The first executable file of that name along the PATH; an absolute path stands for itself."""
    if name.startswith("/"):
        return name if os.access(name, os.X_OK) else None
    for directory in PATH.split(":"):
        if os.access(f"{directory}/{name}", os.X_OK):
            return f"{directory}/{name}"
    return None
