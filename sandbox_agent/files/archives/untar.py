"""Unpacks a tar archive as it arrives: each entry is written as soon as its bytes are here."""

from collections.abc import Generator

from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.archives import names
from sandbox_agent.files.archives import tar_headers as tar
from sandbox_agent.files.archives.tar_headers import BLOCK, Header
from sandbox_agent.files.archives.tree import Tree

# Writers fill the last record with zeros; the longest records in use have 1 MiB.
_MOST_PADDING = 1024 * 1024
# The most extended headers of one entry: a name, a link target, and pax records.
_MOST_EXTENDED = 8

# Parts of the parser, as generators: `send` passes them the next bytes. The second returns bytes.
_Parser = Generator[None, bytes, None]
_BytesParser = Generator[None, bytes, bytes]


class Untar:
    """Unpacks an archive that arrives in pieces of any size. All methods raise AgentError."""

    def __init__(self, tree: Tree) -> None:
        self._tree = tree
        self._ended = False
        # Records for all entries that follow.
        self._of_all: dict[bytes, bytes] = {}
        self._unread = bytearray()
        self._parser = self._parse()
        next(self._parser)

    def push(self, data: bytes) -> None:
        """Takes the next bytes."""
        self._parser.send(data)

    def finish(self) -> bool:
        """Ends the archive after its last bytes. Returns True: everything is done."""
        if not self._ended:
            raise AgentError("validation_error", "the archive is cut: it has no end")
        self._tree.finish()
        return True

    def close(self) -> None:
        """Releases a file that has not arrived completely."""
        self._parser.close()

    def _take(self, count: int) -> _BytesParser:
        while len(self._unread) < count:
            self._unread += yield
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _parse(self) -> _Parser:
        while (block := (yield from self._take(BLOCK))) != tar.END:
            header = yield from self._whole_header(tar.read(block))
            if header is not None:
                yield from self._entry(header)
        self._ended = True
        padding = 0
        while True:
            if any(self._unread):
                raise AgentError("validation_error", "the archive goes on after its end")
            padding += len(self._unread)
            if padding > _MOST_PADDING:
                raise AgentError("validation_error", "the archive does not end")
            self._unread = bytearray((yield))

    def _whole_header(self, header: Header) -> Generator[None, bytes, Header | None]:
        """The header of an entry, with the extended ones before it; None at the archive's end."""
        records: dict[bytes, bytes] = {}
        for _ in range(_MOST_EXTENDED):
            if header.kind not in (tar.PAX, tar.PAX_OF_ALL, tar.LONG_NAME, tar.LONG_LINK):
                return tar.whole(header, self._of_all | records)
            if header.size > tar.LONGEST_EXTENDED:
                raise names.refused(header.name, "has an extended header that is too long")
            data = yield from self._take(header.size + -header.size % BLOCK)
            data = data[: header.size]
            if header.kind == tar.LONG_NAME:
                records[b"path"] = tar.text(data)
            elif header.kind == tar.LONG_LINK:
                records[b"linkpath"] = tar.text(data)
            elif header.kind == tar.PAX:
                records |= tar.pax_records(data)
            else:
                self._of_all |= tar.of_all(tar.pax_records(data))
            block = yield from self._take(BLOCK)
            if block == tar.END and not records:
                return None  # only remarks
            header = tar.read(block)
        raise names.refused(header.name, "has too many extended headers")

    def _entry(self, header: Header) -> _Parser:
        path = names.entry_path(header.name)
        if header.kind == tar.DIRECTORY:
            self._tree.directory(path, header.mode, header.modified)
        elif header.kind == tar.SYMBOLIC_LINK:
            self._tree.symlink(path, header.link, header.modified)
        elif header.kind == tar.HARD_LINK:
            self._tree.link(path, names.entry_path(header.link))
        elif header.kind in tar.FILES:
            yield from self._file(path, header)
        else:
            raise tar.unsupported(header)

    def _file(self, path: str, header: Header) -> _Parser:
        made = self._tree.file(path, header.mode, header.modified)
        try:
            left = header.size
            while left:
                if not self._unread:
                    self._unread += yield
                piece = bytes(self._unread[:left])
                del self._unread[: len(piece)]
                made.write(piece)
                left -= len(piece)
            made.done()
        finally:
            made.close()
        yield from self._take(-header.size % BLOCK)
