"""Files that are written: as a whole, or at their end. Runs in a file worker."""

import contextlib
import os
import stat
from collections.abc import Mapping
from types import MappingProxyType

from sandbox_agent.decide.files import ranges
from sandbox_agent.decide.protocol import CHUNK_BYTES
from sandbox_agent.files.attributes import put
from sandbox_agent.files.condition import UNCONDITIONAL, Condition, not_met
from sandbox_agent.files.directories import make_directory, replaceable
from sandbox_agent.files.draft import Draft, hidden_name, write_all
from sandbox_agent.files.places import Place, open_in, open_parent, split
from sandbox_agent.files.reading import not_regular, open_regular

NO_ATTRIBUTES: Mapping[str, str] = MappingProxyType({})


class _Upload:
    """New content that is collected in a draft until it is committed.

    With `parents`, the commit creates missing parent directories; until then the draft is in the
    lowest directory that exists.
    """

    def __init__(self, workspace: Place, path: str, *, parents: bool) -> None:
        self._workspace, self._path = workspace, path
        self._parent, self._name = split(path)
        above = self._parent
        while True:
            try:
                directory = open_in(workspace, above, os.O_PATH | os.O_DIRECTORY)
                break
            except FileNotFoundError:
                if not parents or above == ".":
                    raise
                above = above.rpartition("/")[0] or "."
        try:
            self._draft = Draft(Place(directory))
        finally:
            os.close(directory)
        self._missing = above != self._parent
        self.size = 0

    def push(self, data: bytes) -> None:
        """Adds bytes."""
        self._draft.write(data)
        self.size += len(data)

    def _make_parents(self) -> None:
        if self._missing:
            make_directory(self._workspace, self._parent)


class Writer(_Upload):
    """New content for a file; it appears as a whole at `commit`, or not at all."""

    def __init__(
        self,
        workspace: Place,
        path: str,
        permissions: int | None = None,
        *,
        parents: bool = False,
        modified: int | None = None,
        condition: Condition | None = None,
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> None:
        """`modified` is in seconds since the epoch; None means now.

        The file has these `attributes`, and no others.

        `condition` is what must hold for the file that is replaced; it is checked now, and once
        more in one step with the commit.
        """
        super().__init__(workspace, path, parents=parents)
        self._modified = modified
        self._condition = condition or UNCONDITIONAL
        self.version = ""
        if not self._missing:
            self._condition.check(workspace, path)
        elif self._condition.match is not None:
            raise not_met(path)
        put(self._draft.fd, attributes)
        mode = 0o644 if self._missing else self._current_mode()
        os.fchmod(self._draft.fd, mode if permissions is None else permissions & 0o777)

    def _current_mode(self) -> int:
        """The mode of the file to replace. Raises: AgentError; OSError if the mode protects it."""
        directory, name = open_parent(self._workspace, self._path)
        try:
            current = replaceable(directory, name)
            if current is None:
                return 0o644
            if not stat.S_ISREG(current):
                raise not_regular(current, self._path)
            return stat.S_IMODE(current) & 0o777
        finally:
            os.close(directory)

    def commit(self) -> None:
        """Puts the content in place in one step. Raises: AgentError, OSError."""
        self._make_parents()
        if self._modified is not None:
            os.utime(self._draft.fd, (self._modified, self._modified))
        directory, name = open_parent(self._workspace, self._path)
        try:
            with self._condition.held():
                self._condition.check(self._workspace, self._path)
                self._put(directory, name)
            self.version = ranges.version(os.fstat(self._draft.fd))
        finally:
            os.close(directory)

    def stage(self, name: str) -> None:
        """Gives the content this name, beside the file that it is to replace. Raises: OSError."""
        self._make_parents()
        directory, _ = open_parent(self._workspace, self._path)
        try:
            self._draft.link(directory, name)
        finally:
            os.close(directory)

    def _put(self, directory: int, name: str) -> None:
        """Gives the content its name, in place of what has it now."""
        try:
            self._draft.link(directory, name)
        except FileExistsError:
            temporary = hidden_name()
            self._draft.link(directory, temporary)
            try:
                os.rename(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                os.unlink(temporary, dir_fd=directory)
                raise


class Appender(_Upload):
    """Bytes for the end of a file, added at `commit`; a missing file is created."""

    def __init__(self, workspace: Place, path: str, *, parents: bool = False) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.close(open_regular(workspace, path, os.O_WRONLY))
        super().__init__(workspace, path, parents=parents)

    def commit(self) -> None:
        """Appends the bytes, or removes them again if there is no room for all."""
        self._make_parents()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
        target = open_regular(self._workspace, self._path, flags)
        start = os.fstat(target).st_size
        os.lseek(self._draft.fd, 0, os.SEEK_SET)
        try:
            while data := os.read(self._draft.fd, CHUNK_BYTES):
                write_all(target, data)
        except OSError:
            os.ftruncate(target, start)
            raise
