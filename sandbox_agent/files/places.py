"""Where file operations act: in the workspace, and where else the level allows it.

At every level, they can also act in the session's volumes. At levels that allow any command, file
operations can read the files of the image and write to /tmp, as commands can. Views of the kernel
and devices are not files of the image.
"""

import os
import posixpath
from collections.abc import Mapping
from typing import NamedTuple

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.files import names
from sandbox_agent.decide.files.names import NOT_SHOWN
from sandbox_agent.decide.outside_paths import TMP, containing, is_file_of_image, outside
from sandbox_agent.enforce.syscalls import open_beneath, open_in_root

RULE = "path-outside-workspace"


class Place(NamedTuple):
    """A directory beneath which paths are resolved.

    With `image`, it is the root of the image, and links may lead anywhere in the image. Without
    `links`, no symbolic link is followed.
    """

    directory: int
    image: bool = False
    links: bool = True


def open_in(place: Place, path: str, flags: int, mode: int = 0) -> int:
    """Opens a path in a place. Raises: OSError; AgentError if it is not a file of the image."""
    if not place.image:
        return open_beneath(place.directory, path, flags, mode, links=place.links)
    fd = open_in_root(place.directory, path, flags)
    if not is_file_of_image(os.readlink(f"/proc/self/fd/{fd}")):
        os.close(fd)
        raise AgentError("permission_denied", f"not a file of the image: /{path}", RULE)
    return fd


def split(path: str) -> tuple[str, str]:
    """The parent directory of `path` and the name in it. Raises: AgentError."""
    parent, _, name = path.rstrip("/").rpartition("/")
    if name in ("", ".", ".."):
        raise AgentError(
            "validation_error", f"path must name something inside the workspace: {path}"
        )
    return parent or ".", name


def open_parent(place: Place, path: str) -> tuple[int, str]:
    """Opens the parent of `path`; returns it and the name in it. Raises: AgentError, OSError."""
    parent, name = split(path)
    return open_in(place, parent, os.O_PATH | os.O_DIRECTORY), name


class Places:
    """The places of one file worker; `anywhere` if its level allows any command.

    Without `links`, no symbolic link in the workspace is followed. `volumes` says by path whether
    the session may write to a volume.
    """

    def __init__(
        self,
        workspace: str,
        *,
        anywhere: bool,
        links: bool = True,
        volumes: Mapping[str, bool] | None = None,
    ) -> None:
        """Raises: OSError."""
        flags = os.O_PATH | os.O_DIRECTORY
        self._workspace = Place(os.open(workspace, flags), links=links)
        self._writable = volumes or {}
        self._volumes = {path: Place(os.open(path, flags)) for path in self._writable}
        self._anywhere = anywhere
        self._tmp = Place(os.open(TMP, flags)) if anywhere else None
        self._image = Place(os.open("/", flags), image=True) if anywhere else None

    def find(self, path: str, *, writes: bool) -> tuple[Place, str]:
        """The place of a path and the path within it; a relative path is in the workspace.

        The path is as `shown`; the one within the place has the bytes themselves.

        Raises: AgentError.
        """
        if not names.is_shown(path):
            raise AgentError("validation_error", f"path {NOT_SHOWN}: {path}")
        path = names.real(path)
        if not path.startswith("/"):
            return self._workspace, path
        path = posixpath.normpath(path)
        volume = containing(path, self._volumes)
        if volume is not None:
            if writes and not self._writable[volume]:
                raise AgentError("permission_denied", f"the volume is read-only: {path}", RULE)
            return self._volumes[volume], path.removeprefix(volume).lstrip("/") or "."
        found = self._tmp if writes else self._image
        if found is None or not outside(path, writes=writes):
            raise AgentError("permission_denied", f"path escapes workspace: {path}", RULE)
        return found, path.removeprefix(TMP if writes else "").lstrip("/") or "."
