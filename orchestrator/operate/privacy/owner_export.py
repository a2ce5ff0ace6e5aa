"""Everything that is kept of one owner, in one file on this machine.

It is a compressed tar: `sessions.jsonl` and the chain of each session in `chains/`, `memory.jsonl`,
`volumes.jsonl`, `snapshots.jsonl`, the evidence of commands and terminals, archives, and the files
of workspaces and volumes. Sessions must have ended, so nothing changes while files are read.
"""

import asyncio
import hashlib
import os
import shutil
import tarfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.ground.events import EventDraft
from orchestrator.ground.store.database import Database
from orchestrator.ground.task_scope import TaskScope
from orchestrator.ground.threads import Threads
from orchestrator.host.workspace import slots
from orchestrator.host.workspace.storage import Storage
from orchestrator.operate.privacy import erased_rows
from orchestrator.operate.privacy.owners_files import OwnersFiles
from orchestrator.record.audit import query
from orchestrator.record.audit.recorder import Recorder
from orchestrator.rules.access.keys import Principal
from paddock.audit.chain import canonical

SUFFIX = ".tar.gz"
_CALL_SECONDS, _LONG_CALL_SECONDS = 60.0, 3600.0
_LINES = 500
_PAGE = 100

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ExportedOwner:
    """The file, its size, and how many sessions are in it."""

    owner: str
    file: str
    bytes: int
    sha256: str
    sessions: int


class OwnerExports:
    """One export at a time. It continues if its caller is cancelled."""

    def __init__(
        self,
        database: Database,
        recorder: Recorder,
        storage: Storage,
        files: OwnersFiles,
        check_disk: Callable[[Path], None],
    ) -> None:
        """`check_disk` raises CapacityExhaustedError if a directory's disk is nearly full."""
        self._database = database
        self._recorder = recorder
        self._storage = storage
        self._files = files
        self._check_disk = check_disk
        self._threads = Threads("exports of owners", 1)
        self._changes = TaskScope("an export")
        self._lock = asyncio.Lock()

    async def close(self) -> None:
        """Waits for what has begun."""
        await self._changes.drain()

    async def export(self, principal: Principal, owner: str) -> ExportedOwner:
        """Writes the file, which replaces an earlier one of that owner; both are on record.

        Raises: ConflictError while a session of the owner has not ended; CapacityExhaustedError;
        AuditUnavailableError; StoreError; StorageError.
        """
        return await self._changes.shield(self._export(principal, owner))

    async def _export(self, principal: Principal, owner: str) -> ExportedOwner:
        async with self._lock:
            await self._database.read(partial(erased_rows.check_ended, owner=owner))
            target = self._files.exports / f"{owner}{SUFFIX}"
            draft = self._files.exports / f".{owner}"
            try:
                await self._call(partial(_make, draft))
                await self._call(partial(self._check_disk, self._files.exports))
                count = await self._write_rows(owner, draft)
                trees = await self._trees(owner)
                sha256, size = await self._call(
                    partial(_pack, target, draft, trees), _LONG_CALL_SECONDS
                )
            finally:
                with suppress(AuditUnavailableError):  # the next export removes it
                    await self._call(partial(shutil.rmtree, draft, ignore_errors=True))
            made = ExportedOwner(owner, str(target), size, sha256, count)
            result = {"bytes": size, "sha256": sha256, "sessions": count}
            event = EventDraft(
                "owner.export",
                actor=principal.name,
                decision="allow",
                args={"key": owner},
                result=result,
            )
            await self._recorder.record_of_key(owner, event, lambda connection: None)
            return made

    async def _write_rows(self, owner: str, draft: Path) -> int:
        """Writes what the database has; returns the number of sessions."""
        count, after = 0, ""
        while found := await self._database.read(
            partial(erased_rows.sessions, owner=owner, after=after)
        ):
            for session in found:
                row = await self._database.read(partial(erased_rows.shown, key=session.key))
                await self._append(draft / "sessions.jsonl", [canonical(row) + "\n"])
                chain = draft / "chains" / f"{session.key}.jsonl"
                lines: list[str] = []
                async for line in query.export(self._database, session.key):
                    lines.append(line)
                    if len(lines) == _LINES:
                        await self._append(chain, lines)
                        lines = []
                await self._append(chain, lines)
                count += 1
            after = found[-1].key
        for name, items in (
            ("memory", self._memory(owner)),
            ("volumes", self._volumes(owner)),
            ("snapshots", self._snapshots(owner)),
        ):
            async for item in items:
                await self._append(draft / f"{name}.jsonl", [canonical(item) + "\n"])
        return count

    async def _memory(self, owner: str) -> AsyncIterator[dict[str, object]]:
        before = None
        while found := await self._files.memory.page(owner, None, before, _PAGE):
            for entry in found:
                yield asdict(entry)
            before = found[-1].id

    async def _volumes(self, owner: str) -> AsyncIterator[dict[str, object]]:
        for each in await self._files.volumes.page(owner, ("", ""), _PAGE):  # a key has no more
            volume = each.volume
            yield {"name": volume.name, "size_bytes": volume.size, "files": volume.files.id}

    async def _snapshots(self, owner: str) -> AsyncIterator[dict[str, object]]:
        after = ("", "")
        while found := await self._files.snapshots.page(owner, None, after, _PAGE):
            for shown in found:
                yield asdict(shown.snapshot)
            last = found[-1].snapshot
            after = (owner, last.name or "")

    async def _trees(self, owner: str) -> dict[str, Path]:
        """Directories and files of the host by their names in the export; not all exist."""
        found: dict[str, Path] = {}
        for workspace in await self._database.read(slots.kept):
            if workspace.owner == owner:
                await self._storage.mount(workspace)
                kind = "volumes" if workspace.is_volume else "workspaces"
                found[f"{kind}/{workspace.id}"] = self._storage.data(workspace)
        after = ""
        while sessions := await self._database.read(
            partial(erased_rows.sessions, owner=owner, after=after)
        ):
            for session in sessions:
                found[f"evidence/{session.key}"] = self._files.evidence / session.key
            after = sessions[-1].key
        after = ""
        while archives := await self._database.read(
            partial(erased_rows.archives, owner=owner, after=after)
        ):
            for _, file in archives:
                found[f"archives/{file}"] = self._files.archives / file
            after = archives[-1][0]
        return found

    async def _append(self, path: Path, lines: list[str]) -> None:
        await self._call(partial(_append, path, lines))

    async def _call(self, function: Callable[[], T], seconds: float = _CALL_SECONDS) -> T:
        try:
            return await self._threads.call(function, seconds)
        except (OSError, TimeoutError) as error:
            detail = str(error) or "the disk does not answer"
            raise AuditUnavailableError(f"nothing is exported: {detail}") from error


def _make(draft: Path) -> None:
    draft.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "chains").mkdir(mode=0o700, parents=True)


def _append(path: Path, lines: list[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(lines)


def _pack(target: Path, draft: Path, trees: dict[str, Path]) -> tuple[str, int]:
    """Packs all of it, durably; returns the digest and the size of the file."""
    packed = draft / "packed"
    descriptor = os.open(packed, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        with tarfile.open(fileobj=file, mode="w:gz", format=tarfile.PAX_FORMAT) as archive:
            for path in _files_of(draft, packed):
                archive.add(path, str(path.relative_to(draft)), recursive=False)
            for name, tree in sorted(trees.items()):
                _add(archive, name, tree)
        file.flush()
        os.fsync(file.fileno())
    with packed.open("rb") as data:
        digest = hashlib.file_digest(data, "sha256").hexdigest()
    packed.replace(target)
    return digest, target.stat().st_size


def _files_of(draft: Path, packed: Path) -> Iterator[Path]:
    return (path for path in sorted(draft.rglob("*")) if path.is_file() and path != packed)


def _add(archive: tarfile.TarFile, name: str, tree: Path) -> None:
    """Adds a file or a tree; links stay links, and what is no file is left out."""
    if tree.is_file():
        archive.add(tree, name, recursive=False)
    elif tree.is_dir():
        archive.add(tree, name, filter=_plain)


def _plain(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return info if info.isfile() or info.isdir() or info.issym() or info.islnk() else None
