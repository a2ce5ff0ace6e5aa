"""A local directory as a tar stream, in both directions. The content of neither side is trusted."""

import os
import re
import stat
import tarfile
import threading
from collections.abc import Callable, Generator, Iterator

from paddock.client.errors import ConnectionLostError, LimitError
from paddock.client.local import Directory, Names, leads_inside

BLOCK = 512
_CHUNK_BYTES = 256 * 1024
_MOST_ENTRIES = 200_000
_LONGEST_EXTENDED = 64 * 1024
# The kernel's limit of a path, in bytes.
_LONGEST_NAME = 4095
# Links are created last: until then their names and targets are in memory, in characters.
_MOST_LINK_TEXT = 32 * 1024 * 1024
_MOST_SKIPPED_NAMES = 1000
# Programs fill an archive up with zeros.
_MOST_FILLING = 1024 * 1024
_DIRECTORY_MODE = 0o755
_PAX_RECORD = re.compile(rb"([1-9][0-9]{0,8}) ([^=\n]+)=")

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
                yield _header(name, tarfile.DIRTYPE, _DIRECTORY_MODE)
        for name in self._names.files:
            yield from self._file(name)
        for name, target in self._names.links:
            yield _header(name, tarfile.SYMTYPE, 0o777, target=target)
        yield bytes(2 * BLOCK)

    def _file(self, name: str) -> Iterator[bytes]:
        content = self._source.open_file(name)
        if content is None:
            self.skipped.append(name)
            return
        with content:
            status = os.fstat(content.fileno())
            left = status.st_size
            yield _header(name, tarfile.REGTYPE, stat.S_IMODE(status.st_mode) & 0o777, size=left)
            while left:
                data = content.read(min(left, _CHUNK_BYTES))
                if not data:
                    raise OSError(f"{name} became shorter while it was read")
                left -= len(data)
                self.bytes += len(data)
                yield data
            yield bytes(-status.st_size % BLOCK)
        self.files += 1


def _header(name: str, kind: bytes, mode: int, *, size: int = 0, target: str = "") -> bytes:
    info = tarfile.TarInfo(name)
    info.type, info.mode, info.size, info.linkname = kind, mode, size, target
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "strict")


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
        self._links: list[tuple[str, str]] = []
        self._link_text = 0
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
        """There are no more bytes; creates the links. Raises: ConnectionLostError, OSError."""
        with self._lock:
            if not self._ended:
                raise self._damaged()
            for name, target in self._links:
                self._target.link(name, target)
                self.links += 1

    def close(self) -> None:
        """Removes a file that has not arrived completely, and writes nothing more."""
        with self._lock:
            self._parser.close()
            self._links.clear()
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
            info, records = self._header(block), {}
            if info.type == tarfile.XHDTYPE:
                records = yield from self._extended(info.size)
                info = self._header((yield from self._take(BLOCK)))
                if info.type == tarfile.XHDTYPE:
                    raise self._damaged()
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
            return tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
        except tarfile.HeaderError:
            raise self._damaged() from None

    def _extended(self, size: int) -> Generator[None, bytes, dict[str, str]]:
        if not 0 <= size <= _LONGEST_EXTENDED:
            raise self._damaged()
        data = (yield from self._take(size + -size % BLOCK))[:size]
        records, at = {}, 0
        while at < len(data):
            found = _PAX_RECORD.match(data, at)
            end = at + int(found[1]) if found else 0
            if found is None or not found.end() < end <= len(data):
                raise self._damaged()
            value = data[found.end() : end - 1]
            named = found[2] in (b"path", b"linkpath")
            if named and len(value.removesuffix(b"/")) > _LONGEST_NAME:
                raise self._damaged()
            records[found[2].decode(errors="replace")] = os.fsdecode(value)
            at = end
        return records

    def _entry(
        self, info: tarfile.TarInfo, records: dict[str, str]
    ) -> Generator[None, bytes, None]:
        self._entries += 1
        if self._entries > _MOST_ENTRIES:
            raise LimitError(f"{self._what} has more than {_MOST_ENTRIES} entries")
        shown = records.get("path", info.name)
        name = _inside(shown.rstrip("/"))
        target = records.get("linkpath", info.linkname)
        if "size" in records and not re.fullmatch(r"[0-9]{1,18}", records["size"]):
            raise self._damaged()
        size = int(records.get("size", info.size)) if info.isreg() else 0
        if size < 0:
            raise self._damaged()
        if name is not None and info.isreg():
            with self._target.replacement(name, info.mode & 0o777) as write:
                yield from self._content(size, write)
            self.files += 1
        elif name is not None and info.isdir():
            self._target.make(name)
        elif name is not None and info.issym() and leads_inside(name, target):
            self._keep_link(name, target)
        else:
            self._skip(shown)
            yield from self._content(size, len)
        yield from self._take(-size % BLOCK)

    def _keep_link(self, name: str, target: str) -> None:
        self._link_text += len(name) + len(target)
        if self._link_text > _MOST_LINK_TEXT:
            raise LimitError(f"the links of {self._what} have too long names and targets")
        self._links.append((name, target))

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
    try:
        name.encode()
    except UnicodeEncodeError:
        return None
    bad = "\0" in name or any(part in ("", ".", "..") for part in name.split("/"))
    return None if bad else name
