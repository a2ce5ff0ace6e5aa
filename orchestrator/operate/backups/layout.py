"""Where the parts of a backup are, and which of them is not as a backup writes it."""

import tarfile
from collections.abc import Sequence
from typing import IO, NamedTuple

_BLOCK, _RECORD = tarfile.BLOCKSIZE, tarfile.RECORDSIZE


class BackupPart(NamedTuple):
    """A member: where its head and its content begin, and how long the content is."""

    name: str
    start: int
    content: int
    size: int

    @property
    def end(self) -> int:
        """Where the next one begins."""
        return self.content + -(-self.size // _BLOCK) * _BLOCK


def info(name: str, size: int) -> tarfile.TarInfo:
    """The head of a member; everything but the name and the size is the same in all heads."""
    made = tarfile.TarInfo(name)
    made.size, made.mode = size, 0o600
    return made


def bent(file: IO[bytes], parts: Sequence[BackupPart]) -> str | None:
    """What differs from a backup's layout, in words; None: nothing. Raises: OSError."""
    at = 0
    for part in parts:
        if part.start != at:
            return f"what is before {part.name}"
        if _piece(file, part.start, part.content) != _head(part):
            return f"the head of {part.name}"
        if any(_piece(file, part.content + part.size, part.end)):
            return f"what fills the block after {part.name}"
        at = part.end
    return "its end" if _rest(file, at) else None


def _head(part: BackupPart) -> bytes:
    return info(part.name, part.size).tobuf(tarfile.PAX_FORMAT)


def _piece(file: IO[bytes], start: int, end: int) -> bytes:
    # Our heads are small, so no more is read, whatever the file says.
    file.seek(start)
    return file.read(min(end - start, _RECORD))


def _rest(file: IO[bytes], end: int) -> bool:
    """Whether anything but the blocks that end an archive follows."""
    wanted = -(-(end + 2 * _BLOCK) // _RECORD) * _RECORD
    file.seek(end)
    rest = file.read(wanted - end + 1)
    return any(rest) or len(rest) != wanted - end
