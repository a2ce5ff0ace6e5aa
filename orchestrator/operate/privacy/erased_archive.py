"""The archive of a chain, made anew without content. It blocks."""

import json
import shutil
import tarfile
from pathlib import Path
from typing import IO

from paddock.audit import archive_file
from paddock.audit.archive_file import ArchiveError, Seal
from paddock.audit.chain import SALT, canonical, erased

_HASHES = ("prev_hash", "hash")


def erase_archive(path: Path) -> Seal | None:
    """Erases the content of an archived chain, with its approvals and evidence.

    None: it has events of an earlier version, whose content can't be taken away, so the file is
    removed, or the file has gone before, as an operator may remove it. It is replaced in one step.
    Raises: ArchiveError, OSError.
    """
    if not path.exists():
        return None
    verified = archive_file.verify(path)
    if not verified.verdict.ok:
        raise ArchiveError(f"{path}: the chain is not whole: {verified.verdict.reason}")
    draft = path.with_name(f".{path.name}.erased")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)
    try:
        if not _write_events(path, draft / archive_file.EVENTS):
            path.unlink()
            return None
        for name in (archive_file.APPROVALS, archive_file.TERMINALS):
            (draft / name).touch(mode=0o600)
        about = {"session": verified.manifest["session"]}
        head = verified.seal.seq, verified.seal.hash
        return archive_file.write(path, about, head, draft, draft / archive_file.EVIDENCE)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_events(path: Path, target: Path) -> bool:
    """Writes the events without content; returns whether each of them has a salt."""
    with tarfile.open(path, "r:gz") as archive, target.open("w", encoding="utf-8") as file:
        data = archive.extractfile(archive_file.EVENTS)
        return data is not None and all(_write_event(line, file) for line in data)


def _write_event(line: bytes, file: IO[str]) -> bool:
    event = json.loads(line)
    if event.get("content") is None:
        if event.get(SALT) is None:
            return False
        hashes = {name: event.pop(name) for name in _HASHES}
        event = erased(event) | hashes
    file.write(canonical(event) + "\n")
    return True
