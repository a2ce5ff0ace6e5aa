"""Finds what a program needs to start: its loader or interpreter, and its shared libraries."""

import os
import stat
import struct
from typing import NamedTuple

from sandbox_agent.enforce.programs import find_program

_PT_DYNAMIC = 2
_PT_LOAD = 1
_PT_INTERP = 3
_DT_NEEDED = 1
_DT_STRTAB = 5
_DT_RPATH = 15
_DT_RUNPATH = 29
_PROGRAM_HEADER = struct.Struct("<IIQQQQQQ")
_DYNAMIC = struct.Struct("<qQ")
# Longer chains of scripts that interpret scripts are not followed; the kernel stops here too.
_MOST_INTERPRETERS = 4


class Needs(NamedTuple):
    """What an ELF file names: its loader, its libraries, and further directories to search."""

    loader: str | None
    libraries: list[str]
    search: list[str]


class Closure(NamedTuple):
    """Real paths: `executed` has programs, interpreters and loaders; `read` also has libraries."""

    executed: set[str]
    read: set[str]


class Libraries:
    """Finds what programs need, as the image's loader would; reads each file once."""

    def __init__(self, known: "Libraries | None" = None) -> None:
        """`known` is another one, whose programs this one has from the beginning."""
        self._directories: list[str] = (
            default_directories() if known is None else known._directories
        )
        found = Closure(set(), set()) if known is None else known.closure
        self._closure = Closure(set(found.executed), set(found.read))

    def add(self, program: str) -> None:
        """Adds a program (an existing absolute path) and all that it needs. Raises: OSError."""
        self._add(os.path.realpath(program), executed=True, depth=0)

    @property
    def closure(self) -> Closure:
        """All programs added so far and what they need."""
        return self._closure

    def _add(self, path: str, executed: bool, depth: int) -> None:
        if executed:
            self._closure.executed.add(path)
        if path in self._closure.read:
            return
        self._closure.read.add(path)
        # A tool's program may be in a place that commands write to, so the open must not block.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return
            start = os.pread(fd, 256, 0)
            if start[:2] == b"#!" and depth < _MOST_INTERPRETERS:
                self._add_interpreter(start, depth)
            elif start[:6] == b"\x7fELF\x02\x01":
                self._add_needs(elf_needs(fd, os.path.dirname(path)))
        finally:
            os.close(fd)

    def _add_interpreter(self, start: bytes, depth: int) -> None:
        words = start[2:].split(b"\n")[0].split()
        if not words or not os.path.exists(words[0]):
            return
        self._add(os.path.realpath(os.fsdecode(words[0])), executed=True, depth=depth + 1)
        if os.path.basename(words[0]) == b"env" and len(words) == 2:
            found = find_program(os.fsdecode(words[1]))
            if found is not None:
                self._add(os.path.realpath(found), executed=True, depth=depth + 1)

    def _add_needs(self, needs: Needs) -> None:
        if needs.loader is not None and os.path.exists(needs.loader):
            self._add(os.path.realpath(needs.loader), executed=True, depth=0)
        for name in needs.libraries:
            for directory in (*needs.search, *self._directories):
                path = f"{directory}/{name}"
                if os.path.exists(path):
                    self._add(os.path.realpath(path), executed=False, depth=0)


def elf_needs(fd: int, origin: str) -> Needs:
    """What the 64-bit little-endian ELF file `fd`, in the directory `origin`, names.

    A truncated or malformed file needs nothing.
    """
    try:
        return _elf_needs(fd, origin)
    except (struct.error, ArithmeticError, ValueError):
        return Needs(None, [], [])


def _elf_needs(fd: int, origin: str) -> Needs:
    header = os.pread(fd, 64, 0)
    table_at, entry_bytes, entries = (
        struct.unpack_from("<Q", header, 32)[0],
        *struct.unpack_from("<HH", header, 54),
    )
    if entry_bytes != _PROGRAM_HEADER.size:
        raise ValueError("not a table of program headers")
    table = os.pread(fd, entry_bytes * entries, table_at)
    segments = [_PROGRAM_HEADER.unpack_from(table, i * entry_bytes) for i in range(entries)]
    loader = None
    dynamic: list[tuple[int, int]] = []
    for kind, _, offset, _, _, size, _, _ in segments:
        if kind == _PT_INTERP:
            loader = os.fsdecode(os.pread(fd, min(size, 4096), offset).rstrip(b"\0"))
        elif kind == _PT_DYNAMIC:
            data = os.pread(fd, min(size, 65536), offset)
            dynamic = list(_DYNAMIC.iter_unpack(data[: len(data) // 16 * 16]))
    names_at = next((value for tag, value in dynamic if tag == _DT_STRTAB), None)
    if names_at is None:
        return Needs(loader, [], [])
    at = _file_offset(segments, names_at)

    def name(offset: int) -> str:
        return os.fsdecode(os.pread(fd, 4096, at + offset).split(b"\0", 1)[0])

    libraries = [name(value) for tag, value in dynamic if tag == _DT_NEEDED]
    paths = [name(value) for tag, value in dynamic if tag in (_DT_RPATH, _DT_RUNPATH)]
    search = [
        directory.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)
        for path in paths
        for directory in path.split(":")
        if directory
    ]
    return Needs(loader, libraries, search)


def _file_offset(segments: list[tuple[int, ...]], address: int) -> int:
    for kind, _, offset, start, _, size, _, _ in segments:
        if kind == _PT_LOAD and start <= address < start + size:
            return offset + address - start
    raise ValueError("an address outside of the file")


def default_directories() -> list[str]:
    """The loader's directories, with variants for newer processors; each real directory once."""
    configured: list[str] = []
    for name in _names_in("/etc/ld.so.conf.d"):
        path = f"/etc/ld.so.conf.d/{name}"
        with open(path, encoding="utf-8", errors="surrogateescape") as lines:
            configured += [line.strip() for line in lines if line.startswith("/")]
    listed = [*configured, "/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"]
    found: dict[str, None] = {}
    for directory in listed:
        real = os.path.realpath(directory)
        if os.path.isdir(real):
            for variant in _names_in(f"{real}/glibc-hwcaps"):
                found[f"{real}/glibc-hwcaps/{variant}"] = None
            found[real] = None
    return list(found)


def _names_in(directory: str) -> list[str]:
    try:
        return sorted(os.listdir(directory))
    except FileNotFoundError:
        return []
