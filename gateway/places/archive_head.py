"""The beginning of a session's snapshot, as it is restored: what kind of session it is. Pure.

Its first part is a JSON document with the session's request, which a node checks with all of the
rest. What can't be read here says nothing about a place.
"""

import tarfile

HEAD_BYTES = 512
_MANIFEST = "snapshot.json"


def manifest_size(head: bytes) -> int | None:
    """The bytes of the document that follow this header; None: it is no such archive."""
    try:
        entry = tarfile.TarInfo.frombuf(head[:HEAD_BYTES], "ascii", "strict")
    except (tarfile.HeaderError, ValueError):
        return None
    return entry.size if entry.name == _MANIFEST and entry.size >= 0 else None


def session_in(manifest: object) -> object:
    """The request of the session that the document has; None: it has none."""
    return manifest.get("session") if isinstance(manifest, dict) else None
