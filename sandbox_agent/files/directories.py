"""What directories hold: made, moved, linked and removed. Runs in a file worker."""

import errno
import os
import stat

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files import listing
from sandbox_agent.files.draft import hidden_name
from sandbox_agent.files.places import Place, open_in, open_parent


def make_directory(workspace: Place, path: str) -> None:
    """Creates a directory and its parents; an existing one is no error. Raises: OSError."""
    parts = [part for part in path.split("/") if part not in ("", ".")]
    for count in range(1, len(parts) + 1):
        directory, name = open_parent(workspace, "/".join(parts[:count]))
        try:
            os.mkdir(name, 0o755, dir_fd=directory)
        except FileExistsError:
            if (
                count == len(parts)
                and listing.stat_entry(Place(directory), name).type != "directory"
            ):
                raise
        finally:
            os.close(directory)


def change_mode(place: Place, path: str, permissions: int) -> None:
    """Sets the nine permission bits of a file or directory; a link is followed. Raises: OSError."""
    fd = open_in(place, path, os.O_PATH)
    try:
        os.chmod(f"/proc/self/fd/{fd}", permissions & 0o777)
    finally:
        os.close(fd)


def delete(workspace: Place, path: str) -> None:
    """Removes a file, a link, or an empty directory. Raises: OSError."""
    directory, name = open_parent(workspace, path)
    try:
        os.unlink(name, dir_fd=directory)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=directory)


def move(source: tuple[Place, str], destination: tuple[Place, str]) -> None:
    """Renames a file; an existing destination is replaced unless its mode protects it.

    Raises: AgentError, OSError.
    """
    from_directory, from_name = open_parent(*source)
    to_directory, to_name = open_parent(*destination)
    replaceable(to_directory, to_name)
    try:
        os.rename(from_name, to_name, src_dir_fd=from_directory, dst_dir_fd=to_directory)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        text = f"is on another file system than {source[1]}: {destination[1]}; copy it instead"
        raise AgentError("conflict", text) from None


def make_link(workspace: Place, path: str, target: str) -> None:
    """Creates a symbolic link; replaces an existing file or link unless its mode protects it.

    Raises: OSError.
    """
    directory, name = open_parent(workspace, path)
    replaceable(directory, name)
    temporary = hidden_name()
    os.symlink(target, temporary, dir_fd=directory)
    try:
        os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except OSError:
        os.unlink(temporary, dir_fd=directory)
        raise


def replaceable(directory: int, name: str) -> int | None:
    """The mode of the file that a new file or link would replace; None if there is none.

    Raises: OSError if the file's mode forbids writing. The directory's mode would allow replacing
    the file, but a read-only mode states the owner's intent.
    """
    try:
        mode = os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode) and not os.access(name, os.W_OK, dir_fd=directory):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return mode
