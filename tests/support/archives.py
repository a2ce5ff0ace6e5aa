"""Archives with any entries, also those that no program makes."""

import errno
import io
import stat
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_TAR_TYPES = {
    "file": tarfile.REGTYPE,
    "directory": tarfile.DIRTYPE,
    "symlink": tarfile.SYMTYPE,
    "link": tarfile.LNKTYPE,
    "fifo": tarfile.FIFOTYPE,
    "device": tarfile.CHRTYPE,
    "block": tarfile.BLKTYPE,
    "sparse": tarfile.GNUTYPE_SPARSE,
    "unknown": b"Z",
}
_ZIP_TYPES = {
    "file": stat.S_IFREG,
    "directory": stat.S_IFDIR,
    "symlink": stat.S_IFLNK,
    "fifo": stat.S_IFIFO,
    "device": stat.S_IFCHR,
    "block": stat.S_IFBLK,
    "socket": stat.S_IFSOCK,
}
_UNIX = 3


class Entry(NamedTuple):
    """One entry; `target` is that of a link."""

    name: str
    content: bytes = b""
    kind: str = "file"
    mode: int = 0o644
    target: str = ""


def tar_of(entries: Iterable[Entry], form: int = tarfile.PAX_FORMAT) -> bytes:
    """A tar archive of the entries."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.name)
            info.type, info.mode, info.linkname = _TAR_TYPES[entry.kind], entry.mode, entry.target
            info.size = len(entry.content)
            archive.addfile(info, io.BytesIO(entry.content))
    return made.getvalue()


def zip_of(entries: Iterable[Entry], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip archive of the entries."""
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", compression) as archive:
        for entry in entries:
            name = entry.name + "/" * (entry.kind == "directory")
            info = zipfile.ZipInfo(name)
            info.create_system, info.compress_type = _UNIX, compression
            info.external_attr = (_ZIP_TYPES[entry.kind] | entry.mode) << 16
            content = entry.target.encode() if entry.kind == "symlink" else entry.content
            archive.writestr(info, content)
    return made.getvalue()


def is_loop(link: Path) -> bool:
    """Whether the kernel refuses to follow it, so that it leads nowhere."""
    try:
        link.stat()
    except OSError as error:
        return error.errno == errno.ELOOP
    return False
