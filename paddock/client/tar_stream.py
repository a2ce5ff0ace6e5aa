"""A local directory as a tar stream, in both directions. The content of neither side is trusted."""

import os
import stat
import tarfile
import threading
from collections.abc import Callable, Generator, Iterator

from paddock.client import tar_entries
from paddock.client.errors import ConnectionLostError, LimitError
from paddock.client.local_directory import Directory, Names, leads_inside

BLOCK = 512
_CHUNK_BYTES = 256 * 1024
_MOST_ENTRIES = 200_000
_LONGEST_EXTENDED = 64 * 1024
# Links and times of directories are set last. Until then they are kept: so many characters.
_MOST_KEPT_TEXT = 32 * 1024 * 1024
_MOST_SKIPPED_NAMES = 1000
# Programs fill an archive up with zeros.
_MOST_FILLING = 1024 * 1024
_DIRECTORY_MODE = 0o755
# Extended headers of one entry: a name, a link target, and pax records.
_MOST_EXTENDED = 3

# A part of the parser, which is sent the next bytes.
_Waiting = Generator[None, bytes, None]
# Called with the files and bytes so far.
Progress = Callable[[int, int], None]


class Sending:
    """The archive of what `names` lists; the counts are complete after the last piece.

    All methods may be called in threads; one that was abandoned may still run during `close`.
    """

    def __init__(self, source: Directory, names: Names, progress: Progress | None) -> None:
        self._source, self._names = source, names
        self._progress = progress or (lambda _files, _bytes: None)
        self.files = self.bytes = 0
        self.skipped = list(names.skipped)
        self._lock = threading.Lock()
        self._pieces = self._joined()

    def next(self) -> bytes:
        """The next bytes, about 256 KiB; none at the end. Raises: OSError."""
        with self._lock:
            return next(self._pieces, b"")

    def close(self) -> None:
        """Sends nothing more."""
        with self._lock:
            self._pieces = iter(())
            self._source.close()

    def _joined(self) -> Iterator[bytes]:
        ready = bytearray()
        for part in self._parts():
            ready += part
            if len(ready) >= _CHUNK_BYTES:
                yield bytes(ready)
                ready.clear()
                self._progress(self.files, self.bytes)
        yield bytes(ready)
        self._progress(self.files, self.bytes)

    def _parts(self) -> Iterator[bytes]:
        above = {os.path.dirname(name) or "." for name in self._names.files}
        for name in self._names.innermost:
            if name not in above and name != ".":
                when = self._source.modified(name)
                yield tar_entries.written(name, tarfile.DIRTYPE, _DIRECTORY_MODE, when)
        for name in self._names.files:
            yield from self._file(name)
        for name, target in self._names.links:
            when = self._source.modified(name)
            yield tar_entries.written(name, tarfile.SYMTYPE, 0o777, when, target=target)
        yield bytes(2 * BLOCK)

    def _file(self, name: str) -> Iterator[bytes]:
        content = self._source.open_file(name)
        if content is None:
            self.skipped.append(name)
            return
        with content:
            status = os.fstat(content.fileno())
            left, mode = status.st_size, stat.S_IMODE(status.st_mode) & 0o777
            yield tar_entries.written(name, tarfile.REGTYPE, mode, int(status.st_mtime), size=left)
            while left:
                data = content.read(min(left, _CHUNK_BYTES))
                if not data:
                    raise OSError(f"{name} became shorter while it was read")
                left -= len(data)
                self.bytes += len(data)
                yield data
            yield bytes(-status.st_size % BLOCK)
        self.files += 1


class Receiving:
    """Writes an archive into a directory as it arrives; names that lead out of it are skipped.

    All methods may be called in threads; one that was abandoned may still run during `close`.
    """

    def __init__(
        self, target: Directory, most_bytes: int, what: str, progress: Progress | None
    ) -> None:
        """`what` is named in errors."""
        self._target = target
        self._most = self._left = most_bytes
        self._what = what
        self._progress = progress or (lambda _files, _bytes: None)
        self._entries = 0
        self._lock = threading.Lock()
        self._links: list[tuple[str, str, int]] = []
        self._directories: list[tuple[str, int]] = []
        self._kept_text = 0
        self._ended = False
        self._unread = bytearray()
        self._parser = self._parse()
        next(self._parser)
        self.files = self.bytes = self.links = 0
        # The names of the first skipped entries, and how many others there are.
        self.skipped: list[str] = []
        self.more_skipped = 0

    def feed(self, data: bytes) -> None:
        """The next bytes. Raises: LimitError, ConnectionLostError if they are damaged, OSError."""
        with self._lock:
            self._parser.send(data)
            self._progress(self.files, self.bytes)

    def finish(self) -> None:
        """There are no more bytes: links, and times of directories, come last.

        Raises: ConnectionLostError, OSError.
        """
        with self._lock:
            if not self._ended:
                raise self._damaged()
            for name, target, modified in self._links:
                self._target.link(name, target, modified)
                self.links += 1
            for name, modified in reversed(self._directories):
                self._target.set_modified(name, modified)

    def close(self) -> None:
        """Removes a file that has not arrived completely, and writes nothing more."""
        with self._lock:
            self._parser.close()
            self._links.clear()
            self._directories.clear()
            self._target.close()

    def _damaged(self) -> ConnectionLostError:
        return ConnectionLostError(f"the archive of {self._what} is damaged or incomplete")

    def _take(self, count: int) -> Generator[None, bytes, bytes]:
        while len(self._unread) < count:
            self._unread += yield
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _parse(self) -> _Waiting:
        while (block := (yield from self._take(BLOCK))) != bytes(BLOCK):
            info = self._header(block)
            records: dict[str, str] = {}
            for _ in range(_MOST_EXTENDED):
                if info.type not in tar_entries.EXTENDED:
                    break
                records |= yield from self._extended(info)
                info = self._header((yield from self._take(BLOCK)))
            yield from self._entry(info, records)
        self._ended = True
        filling = 0
        while True:
            filling += len(self._unread)
            if filling > _MOST_FILLING or any(self._unread):
                raise self._damaged()
            self._unread.clear()
            self._unread += yield

    def _header(self, block: bytes) -> tarfile.TarInfo:
        try:
            return tar_entries.header(block)
        except tarfile.HeaderError:
            raise self._damaged() from None

    def _extended(self, info: tarfile.TarInfo) -> Generator[None, bytes, dict[str, str]]:
        if not 0 <= info.size <= _LONGEST_EXTENDED:
            raise self._damaged()
        data = (yield from self._take(info.size + -info.size % BLOCK))[: info.size]
        try:
            return tar_entries.records(info, data)
        except ValueError:
            raise self._damaged() from None

    def _entry(
        self, info: tarfile.TarInfo, records: dict[str, str]
    ) -> Generator[None, bytes, None]:
        self._entries += 1
        if self._entries > _MOST_ENTRIES:
            raise LimitError(f"{self._what} has more than {_MOST_ENTRIES} entries")
        try:
            entry = tar_entries.entry(info, records)
        except ValueError:
            raise self._damaged() from None
        name, target, when = _inside(entry.name.rstrip("/")), entry.target, entry.modified
        if name is not None and entry.kind == tarfile.REGTYPE:
            with self._target.replacement(name, entry.mode & 0o777, when) as write:
                yield from self._content(entry.size, write)
            self.files += 1
        elif name is not None and entry.kind == tarfile.DIRTYPE:
            self._target.make(name)
            self._keep(name)
            self._directories.append((name, when))
        elif name is not None and entry.kind == tarfile.SYMTYPE and leads_inside(name, target):
            self._keep(name + target)
            self._links.append((name, target, when))
        else:
            self._skip(entry.name)
            yield from self._content(entry.size, len)
        yield from self._take(-entry.size % BLOCK)

    def _keep(self, text: str) -> None:
        self._kept_text += len(text)
        if self._kept_text > _MOST_KEPT_TEXT:
            raise LimitError(f"{self._what} has too long names of links and directories")

    def _skip(self, name: str) -> None:
        if len(self.skipped) < _MOST_SKIPPED_NAMES:
            self.skipped.append(name)
        else:
            self.more_skipped += 1

    def _content(self, size: int, write: Callable[[bytes], int]) -> _Waiting:
        self._left -= size
        if self._left < 0:
            raise LimitError(f"{self._what} has more than {self._most} bytes")
        while size:
            if not self._unread:
                self._unread += yield
            piece = bytes(self._unread[:size])
            del self._unread[: len(piece)]
            write(piece)
            size -= len(piece)
            self.bytes += len(piece)


def _inside(name: str) -> str | None:
    """The name, or None if it is not plainly beneath the directory."""
    bad = "\0" in name or any(part in ("", ".", "..") for part in name.split("/"))
    return None if bad else name
