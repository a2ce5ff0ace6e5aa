"""The file of a backup: an uncompressed tar. Every call blocks.

`backup.json` comes first: the format, and what the backup has. `digests.json` comes after the
others: size and SHA-256 of each, in their order. A file without it was not written to its end.
`backup.sha256` comes last: the SHA-256 of all bytes before it; older backups do not have it.
Members whose names end in `.sparse` are packed (`sparse_file.py`).
"""

import hashlib
import io
import json
import os
import re
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, Self

from orchestrator.operate.backups import layout, sparse_file

FORMAT = 1
_SPARSE = ".sparse"
_ABOUT, _DIGESTS, _WHOLE = "backup.json", "digests.json", "backup.sha256"
_MOST_JSON_BYTES = 64 * 1024 * 1024
_PIECE = 1024 * 1024
# Members are files below the directory into which they are restored.
_NAME = re.compile(r"(?!\.)[A-Za-z0-9._-]+(/(?!\.)[A-Za-z0-9._-]+){0,4}")

Report = Callable[[str], None]


class BackupError(Exception):
    """A backup that can't be taken or restored. The message is one sentence."""


class Digest(NamedTuple):
    """Size and SHA-256 of a member."""

    bytes: int
    sha256: str


class BackupWriter:
    """Writes members to a file, in the order of the calls."""

    def __init__(self, file: IO[bytes], about: dict[str, Any]) -> None:
        """`about` describes the backup, besides its format."""
        self._file = _Summing(file)
        self._archive = tarfile.open(  # noqa: SIM115
            fileobj=self._file, mode="w", format=tarfile.PAX_FORMAT
        )
        self.digests: dict[str, Digest] = {}
        text = json.dumps({"format": FORMAT, **about}, indent=2).encode()
        self._add(_ABOUT, len(text), io.BytesIO(text))

    def add(self, name: str, path: Path) -> None:
        """Adds a file with the length that it has now, even if it grows meanwhile.

        Raises: FileNotFoundError if it is gone; OSError.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as source:
            self._add(name, os.fstat(descriptor).st_size, source)

    def add_sparse(self, name: str, path: Path) -> None:
        """Adds a file that nobody changes, without its holes. Raises: OSError."""
        with path.open("rb") as file:
            packed = sparse_file.PackedFile(file)
            self._add(name + _SPARSE, packed.size, packed)

    def _add(self, name: str, size: int, source: sparse_file.Readable) -> None:
        read = _Summed(source)
        self._archive.addfile(layout.info(name, size), read)
        self.digests[name] = Digest(size, read.sha256)

    def close(self) -> None:
        """Writes the digests, which make the file complete."""
        text = json.dumps({name: each._asdict() for name, each in self.digests.items()}).encode()
        self._archive.addfile(layout.info(_DIGESTS, len(text)), io.BytesIO(text))
        whole = f"{self._file.sha256}\n".encode()
        self._archive.addfile(layout.info(_WHOLE, len(whole)), io.BytesIO(whole))
        self._archive.close()


class BackupReader:
    """Reads a backup from its start, and knows at its end whether it is whole."""

    def __init__(self, file: IO[bytes]) -> None:
        """Raises: BackupError if it is no backup, or of a newer format."""
        self._file = file
        self._seen: dict[str, Digest] = {}
        self._parts: list[layout.BackupPart] = []
        # Known once all was read: the digest of the whole file, and whether the backup states it.
        self.sha256 = ""
        self.is_stated = False
        try:
            self._archive = tarfile.open(fileobj=file, mode="r:")  # noqa: SIM115
            self._entries = self._read_entries()
            self.about = self._read_about()
        except (tarfile.TarError, OSError, ValueError, EOFError) as error:
            raise BackupError(f"it is no backup that can be read: {error}") from None

    @classmethod
    def of(cls, file: IO[bytes]) -> Self:
        """A reader from the start of an open file. Raises: BackupError."""
        file.seek(0)
        return cls(file)

    def _read_about(self) -> dict[str, Any]:
        name, data, size = next(self._entries, ("", io.BytesIO(), 0))
        if name != _ABOUT or size > _MOST_JSON_BYTES:
            raise ValueError("it does not begin with backup.json")
        text = data.read()
        about = json.loads(text)
        if not isinstance(about, dict) or not isinstance(about.get("format"), int):
            raise ValueError("backup.json names no format")
        if about["format"] > FORMAT:
            raise BackupError(
                f"it has format {about['format']}, but this Paddock knows formats up to {FORMAT}:"
                " restore it with the version that wrote it"
            )
        self._seen[name] = Digest(len(text), hashlib.sha256(text).hexdigest())
        return about

    def check(self) -> None:
        """Reads it to its end. Raises: BackupError if anything differs from its digest."""
        for _ in self._members(None):
            pass

    def unpack(self, directory: Path, report: Report) -> None:
        """Writes every member below the empty directory, durably.

        If this raises, what was written can't be used. Raises: BackupError if the backup is
        damaged; OSError.
        """
        for name in self._members(directory):
            report(name)

    def _members(self, directory: Path | None) -> Iterator[str]:
        try:
            for name, data, size in self._entries:
                if name == _DIGESTS:
                    self._compare(data.read(_MOST_JSON_BYTES))
                    self._check_whole()
                    return
                if name == _WHOLE:
                    break
                if name in self._seen or not _NAME.fullmatch(name):
                    raise ValueError(f"{name[:100]!r} can't be in a backup")
                read = _Summed(data)
                _copy(read, None if directory is None else directory / name)
                self._seen[name] = Digest(size, read.sha256)
                yield name
        except tarfile.TarError as error:
            raise BackupError(f"it is damaged {self._after()}: {error}") from None
        except (ValueError, EOFError, KeyError, TypeError) as error:
            raise BackupError(f"it is damaged: {error}") from None
        raise BackupError(f"it is damaged: its end is missing, or can't be read, {self._after()}")

    def _after(self) -> str:
        last = self._parts[-1]
        return f"after {last.name} (from byte {last.end} on)"

    def _check_whole(self) -> None:
        """Compares every byte. Raises: ValueError that says which part differs."""
        name, data, size = next(self._entries, (None, io.BytesIO(), 0))
        stated = data.read(min(size, 100)) if name == _WHOLE else None
        if name not in (None, _WHOLE) or next(self._entries, None) is not None:
            raise ValueError(f"something follows {_DIGESTS}")
        before, self.sha256 = _digests(self._file, self._parts[-1].start)
        self.is_stated = stated is not None
        differs = layout.bent(self._file, self._parts)
        if differs is not None:
            raise ValueError(f"{differs} is not as it was written")
        if stated is not None and stated != f"{before}\n".encode():
            raise ValueError(f"the digest of the whole, {_WHOLE}, is not that of its bytes")

    def _compare(self, text: bytes) -> None:
        stated = {name: Digest(**each) for name, each in json.loads(text).items()}
        for name in {**stated, **self._seen}:
            if stated.get(name) != self._seen.get(name):
                raise ValueError(f"{name} is not as it was written")

    def _read_entries(self) -> Iterator[tuple[str, IO[bytes], int]]:
        for member in self._archive:
            data = self._archive.extractfile(member) if member.isreg() else None
            if data is None:
                raise ValueError(f"{member.name[:100]!r} is no file")
            self._parts.append(
                layout.BackupPart(member.name, member.offset, member.offset_data, member.size)
            )
            yield member.name, data, member.size


def _digests(file: IO[bytes], before: int) -> tuple[str, str]:
    """The SHA-256 of that many first bytes, and of the whole file. Raises: OSError."""
    file.seek(0)
    found, left = hashlib.sha256(), before
    while left and (piece := file.read(min(_PIECE, left))):
        found.update(piece)
        left -= len(piece)
    first = found.hexdigest()
    while piece := file.read(_PIECE):
        found.update(piece)
    return first, found.hexdigest()


class _Summing(io.RawIOBase):
    """Writes to another file, and sums up what was written."""

    def __init__(self, target: IO[bytes]) -> None:
        self._target = target
        self._sum = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()

    def tell(self) -> int:
        return self._target.tell()

    def write(self, piece: Any) -> int:
        self._sum.update(piece)
        return self._target.write(piece)


class _Summed(io.RawIOBase):
    """Reads from another file, and sums up what was read."""

    def __init__(self, source: sparse_file.Readable) -> None:
        self._source = source
        self._sum = hashlib.sha256()

    @property
    def sha256(self) -> str:
        return self._sum.hexdigest()

    def read(self, size: int = -1) -> bytes:
        piece = self._source.read(size)
        self._sum.update(piece)
        return piece


def _copy(source: _Summed, target: Path | None) -> None:
    """Reads it to its end, and writes it to a new file. Raises: OSError."""
    if target is None:
        while source.read(_PIECE):
            pass
        return
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    packed = target.name.endswith(_SPARSE)
    if packed:
        target = target.with_suffix("")
    with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        if packed:
            sparse_file.unpack(source, file)
        while piece := source.read(_PIECE):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
