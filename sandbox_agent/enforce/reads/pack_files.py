"""Opens what a session may use of its workspace, so that Landlock can allow exactly that."""

import os
import stat
from collections.abc import Iterator
from contextlib import suppress

from sandbox_agent.decide.manifest import Consume
from sandbox_agent.decide.protocol import WORKSPACE_DIR
from sandbox_agent.enforce.landlock import CHANGE, EXECUTE, READ, READ_DIR, READ_FILE, Opened
from sandbox_agent.enforce.privileges import as_user
from sandbox_agent.enforce.syscalls import open_beneath

# Which file each entry is, by device and inode, since the sandbox has its session. A ruleset holds
# these files, so no other gets their inodes.
Held = dict[str, tuple[int, int]]
# A file that the session writes is none of its pack: reading it back is not allowed.
WRITE = (CHANGE & ~READ) | READ_DIR


def opened(
    consume: Consume,
    uid: int,
    *,
    executable: bool,
    workspace: str = WORKSPACE_DIR,
    held: Held | None = None,
) -> Iterator[Opened]:
    """The files and directories of the manifest that exist, with their rights.

    Written directories that do not exist are created first. Only the session's user can reach the
    files, and no link is followed. `executable`: entries may be executed. `held` gets the entries
    when it is empty; later, nothing that has taken the place of one is opened. Raises: OSError if a
    written directory can't be created.
    """
    first = not held
    top = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with as_user(uid):
            for path in consume.writes:
                _create(top, path)
        file_rights = READ_FILE | (EXECUTE if executable else 0)
        for paths, form, access in (
            (consume.entries, stat.S_IFREG, file_rights),
            (consume.directories, stat.S_IFDIR, READ_DIR),
            (consume.writes, None, WRITE),
        ):
            for path in paths:
                fd = _open(top, path, form, uid)
                if fd is None:
                    continue
                if held is not None and form == stat.S_IFREG:
                    found = identity(fd)
                    if first:
                        held[path] = found
                    elif held.get(path) != found:
                        os.close(fd)
                        continue
                yield Opened(fd, access)
    finally:
        os.close(top)


def identity(fd: int) -> tuple[int, int]:
    """Which file a descriptor has."""
    status = os.fstat(fd)
    return status.st_dev, status.st_ino


def _open(top: int, path: str, form: int | None, uid: int) -> int | None:
    """The file, if it exists, has that form and is no link."""
    try:
        with as_user(uid):
            fd = open_beneath(top, path, os.O_PATH | os.O_NOFOLLOW, links=False)
    except OSError:  # nothing is allowed then
        return None
    if form is None or stat.S_IFMT(os.fstat(fd).st_mode) == form:
        return fd
    os.close(fd)
    return None


def _create(top: int, path: str) -> None:
    """Creates the directory and its parents, unless something is there."""
    made = ""
    for name in path.split("/"):
        parent, made = made or ".", f"{made}/{name}".lstrip("/")
        directory = open_beneath(top, parent, os.O_PATH | os.O_DIRECTORY, links=False)
        try:
            with suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=directory)
        finally:
            os.close(directory)
