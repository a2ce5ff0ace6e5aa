"""Unpacks a zip archive. Its table of contents is at its end, so all of it is stored first."""

import errno
import io
import stat
import time
import zipfile
import zlib
from collections.abc import Generator

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.decide.protocol import CHUNK_BYTES
from sandbox_agent.files.archives import names, zip_entries
from sandbox_agent.files.archives.tally import MOST_ENTRIES
from sandbox_agent.files.archives.tree import NewFile, Tree
from sandbox_agent.files.draft import Draft, write_all
from sandbox_agent.files.places import Place

_Steps = Generator[None, None, None]
# How long one call of `finish` unpacks; the control plane then asks for the next one.
_STEP_SECONDS = 2.0
_ENCRYPTED = 0x1
_LONGEST_TARGET = 4096
# The largest table of contents, which is read at once.
_MOST_CONTENTS = 64 * 1024 * 1024


class Unzip:
    """Unpacks an archive that arrives in pieces of any size.

    All methods raise AgentError, OSError.
    """

    def __init__(self, tree: Tree, place: Place) -> None:
        self._tree = tree
        # The file has no name. It is in the workspace, so it counts towards the session's quota.
        self._stored = _StoredArchive(Draft(place).fd, "r+b")
        self._steps = self._entries()

    def push(self, data: bytes) -> None:
        """Takes the next bytes."""
        write_all(self._stored.fileno(), data)

    def finish(self) -> bool:
        """Unpacks for some time; returns whether everything is done."""
        until = time.monotonic() + _STEP_SECONDS
        try:
            for _ in self._steps:
                if time.monotonic() >= until:
                    return False
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError) as error:
            raise AgentError("validation_error", f"the archive is damaged: {error}") from None
        except OSError as error:
            # In a damaged archive, zipfile may seek to before the beginning.
            if error.errno != errno.EINVAL:
                raise
            raise AgentError("validation_error", "the archive is damaged") from None
        self._tree.finish()
        return True

    def close(self) -> None:
        """Frees the stored archive."""
        self._steps.close()
        self._stored.close()

    def _entries(self) -> _Steps:
        """Unpacks everything, one chunk or entry after the other."""
        archive = self._opened()
        for info in archive.infolist():
            yield from self._entry(archive, info)

    def _opened(self) -> zipfile.ZipFile:
        archive = zipfile.ZipFile(self._stored)
        if len(archive.infolist()) > MOST_ENTRIES:
            raise _too_many()
        return archive

    def _entry(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> _Steps:
        raw = zip_entries.name(info)
        path, modified = names.entry_path(raw), zip_entries.modified(info)
        # Archives of other systems have no mode.
        mode = info.external_attr >> 16 if info.create_system == 3 else 0
        kind = stat.S_IFMT(mode)
        if info.flag_bits & _ENCRYPTED:
            raise names.refused(raw, "is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise names.refused(raw, "is compressed in another way than deflate")
        if raw.endswith(b"/") or kind == stat.S_IFDIR:
            self._tree.directory(path, mode & 0o777 if mode else 0o755, modified)
        elif kind == stat.S_IFLNK:
            self._tree.symlink(path, self._target(archive, info, raw), modified)
        elif kind in (0, stat.S_IFREG):
            made = self._tree.file(path, mode & 0o777 if mode else 0o644, modified)
            yield from self._content(archive, info, path, made)
        else:
            raise names.refused(raw, "is neither a file, a directory nor a link")
        yield

    def _target(self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, name: bytes) -> bytes:
        if info.file_size > _LONGEST_TARGET:
            raise names.refused(name, "is a symbolic link that is too long")
        with archive.open(info) as source:
            return source.read(_LONGEST_TARGET)

    def _content(
        self, archive: zipfile.ZipFile, info: zipfile.ZipInfo, path: str, made: NewFile
    ) -> _Steps:
        try:
            left = info.file_size
            with archive.open(info) as source:
                while data := source.read(CHUNK_BYTES):
                    made.write(data)
                    left -= len(data)
                    yield
            if left:
                raise names.refused(path, "has another size than the archive says")
            made.done()
        finally:
            made.close()


class _StoredArchive(io.FileIO):
    """The archive's file; one read returns at most as much as a table of contents may have.

    An archive can have several ends that name different sizes. The bound therefore applies where
    zipfile reads, whichever end it follows.
    """

    def read(self, size: int | None = -1) -> bytes:
        if size is None or size < 0:
            size = _MOST_CONTENTS
        elif size > _MOST_CONTENTS:
            raise _too_many()
        return super().read(size) or b""


def _too_many() -> AgentError:
    return AgentError("too_large", f"an archive may have {MOST_ENTRIES} entries")
