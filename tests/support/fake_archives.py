"""Archives as a fake agent packs and unpacks them: with the standard library, trusting them."""

import hashlib
import io
import posixpath
import tarfile
from collections.abc import Iterable, Mapping

from sandbox_agent.decide.files.names import shown
from sandbox_agent.decide.protocol import Message
from tests.support.archives import Entry, tar_of, zip_of


def packed(path: str, kind: str, entries: Iterable[Entry]) -> tuple[bytes, Message]:
    """An archive of the entries beneath a path, and its summary."""
    base = "" if path == "." else path + "/"
    inner = [
        entry._replace(name=entry.name.removeprefix(base))
        for entry in entries
        if entry.name.startswith(base)
    ]
    data = tar_of(inner) if kind == "tar" else zip_of(inner)
    return data, {**summary(inner), "skipped": 0, "skipped_names": []}


def unpacked(path: str, data: bytes) -> list[Entry]:
    """The entries of a tar archive, with their paths in the workspace."""
    kinds = {tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "symlink"}
    found = []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for info in archive:
            name = posixpath.normpath(posixpath.join(path, info.name))
            file = archive.extractfile(info) if info.isreg() else None
            content = b"" if file is None else file.read()
            kind = kinds.get(info.type, "file")
            found.append(Entry(name, content, kind, info.mode, info.linkname))
    return found


def summary(entries: Iterable[Entry]) -> Message:
    """The counts, paths and digest of entries."""
    entries = list(entries)
    paths = [shown(entry.name) for entry in entries]
    kinds: Mapping[str, str] = {"file": "files", "directory": "directories", "symlink": "links"}
    return {
        **{name: sum(kinds[each.kind] == name for each in entries) for name in kinds.values()},
        "bytes": sum(len(entry.content) for entry in entries),
        "paths": paths,
        "paths_words": len(paths),
        "paths_sha256": hashlib.sha256(
            b"".join(shown(path).encode() + b"\0" for path in paths)
        ).hexdigest(),
    }
