"""The helper of snapshots, which packs or unpacks a tree that it knows by descriptors."""

import fcntl
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from orchestrator.host.workspace.staged import base, descriptors
from orchestrator.host.workspace.staged.changes import Change, RefusedEntry, TooMuchError, walk
from orchestrator.host.workspace.staged.names import bad_name, bad_place
from sandbox_agent.decide.errors import AgentError
from sandbox_agent.files.archives import names
from sandbox_agent.files.archives.packing import Packing
from sandbox_agent.files.archives.scan import Scan
from sandbox_agent.files.archives.tally import MOST_ENTRIES, Tally
from sandbox_agent.files.archives.tree import Tree
from sandbox_agent.files.archives.untar import Untar
from sandbox_agent.files.places import Place

_CHUNK = 1024 * 1024
_MOST_NAMES = 64
_OPAQUE = "user.overlay.opaque"


def perform(request: dict[str, Any]) -> dict[str, Any]:
    """Answers a request, which has open descriptors and the most bytes of files, `most`.

    The descriptors are `tree`, a directory; `archive`, its tar; and for staged work also `marks`,
    `lower` and `area`. Raises: OSError, ValueError.
    """
    try:
        return _pack(request) if request["action"] == "pack" else _unpack(request, request["most"])
    except AgentError as error:
        return {"error": error.message, "kind": error.code}
    except TooMuchError:
        return {"error": "more is staged than can be examined", "kind": "too_large"}


# Packing.


def _pack(request: dict[str, Any]) -> dict[str, Any]:
    skipped: list[str] = []
    if "marks" in request:
        fcntl.flock(request["area"], fcntl.LOCK_EX | fcntl.LOCK_NB)
        marks = _marks(request, skipped)
        _write(request["marks"], json.dumps(marks, separators=(",", ":")).encode())
    place = Place(request["tree"], links=False)
    # Names that are not UTF-8 can't be staged; `_marks` has named them.
    scan = Scan(place, ".", Tally(str), texts="marks" in request)
    packing = Packing(scan, "tar")
    while data := packing.pull(_CHUNK):
        _write(request["archive"], data)
    if "marks" in request:
        # The tar leaves out what the kernel marks as deleted; the marks have it.
        return {"skipped": skipped[:_MOST_NAMES], "count": len(skipped)}
    return {"skipped": scan.skipped.names, "count": scan.skipped.count}


def _marks(request: dict[str, Any], skipped: list[str]) -> dict[str, list[str]]:
    """What is staged besides files: deletions, and directories that replace others."""
    known = base.read(request["area"])
    deleted, opaque = [], []
    for found in walk(request["tree"], request["lower"]):
        if isinstance(found, RefusedEntry):
            skipped.append(found.ref)
            continue
        if known.changed(found):
            text = f"the workspace was changed at {found.ref}, which the session changes, too"
            raise AgentError("conflict", f"{text}: commit or roll back first")
        if found.type == "delete":
            deleted.append(found.ref)
        elif _hides(found):
            opaque.append(found.ref)
    return {"deleted": deleted, "opaque": opaque}


def _hides(change: Change) -> bool:
    return change.kind == "directory" and change.replaces


def _write(handle: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


# Unpacking.


def _unpack(request: dict[str, Any], most: int) -> dict[str, Any]:
    tree = Tree(Place(request["tree"], links=False), ".", most, str)
    untar = Untar(tree)
    try:
        while data := os.read(request["archive"], _CHUNK):
            untar.push(data)
        for name in tree.tally.skipped.names:  # no snapshot of ours has such a link
            raise names.leads_out(name, "is a symbolic link with an absolute target")
        # This comes before directories get their modes, which may forbid it.
        if "marks" in request:
            _mark(request["tree"], request["marks"])
        untar.finish()
    finally:
        untar.close()
        tree.close()
    descriptors.sync_all(request["tree"])
    return tree.tally.members()


def _mark(upper: int, marks: int) -> None:
    """Marks what is deleted, and directories that replace others, as the kernel does."""
    marked = json.loads(b"".join(descriptors.chunks(marks)))
    for ref in _refs(marked, "opaque"):
        with _naming(ref):
            handle = descriptors.open_beneath(upper, ref, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.setxattr(handle, _OPAQUE, b"y")
            finally:
                os.close(handle)
    for ref in _refs(marked, "deleted"):
        with _naming(ref), descriptors.parent_of(upper, ref) as (directory, name):
            # A character device 0:0 is the kernel's mark, which every user may make.
            os.mknod(name, stat.S_IFCHR, 0, dir_fd=directory)


def _refs(marked: Any, member: str) -> Iterator[str]:
    refs = marked.get(member) if isinstance(marked, dict) and len(marked) == 2 else None
    if not isinstance(refs, list) or len(refs) > MOST_ENTRIES:
        raise AgentError("validation_error", f"{member} must list paths")
    for ref in refs:
        text = ref.encode("utf-8", "surrogatepass") if isinstance(ref, str) else b"\0"
        if bad_name(text) or bad_place(text):
            raise AgentError("validation_error", f"{member} must list paths")
        yield ref


@contextmanager
def _naming(ref: str) -> Iterator[None]:
    """Names the path of a mark that can't be made."""
    try:
        yield
    except OSError as error:
        why = error.strerror or "failed"
        raise AgentError("validation_error", f"{ref[:256]} can't be marked: {why}") from None
