"""Everything that is kept of one owner on this machine, in one file.

It is a compressed tar: `sessions.jsonl` and the chain of each session in `chains/`, what else the
database has of them and of the key in further `.jsonl` files, the evidence of commands and
terminals, archives, the files of workspaces and volumes, and the images of named snapshots.
Sessions must have ended, so nothing changes while files are read. Values of secrets stay sealed.
"""

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
from orchestrator.ground.threads import Threads
from orchestrator.host.workspace import slots
from orchestrator.operate.hooks.hook import Hook
from orchestrator.operate.hooks.hooks import Hooks
from orchestrator.operate.privacy import erased_rows, erasure_orders, exported_rows
from orchestrator.operate.privacy.erasure_orders import OwnerOrder
from orchestrator.operate.privacy.owners_content import OwnersContent
from orchestrator.record.audit import query
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.secret import Holder
from orchestrator.state.secret_rows import use_of
from paddock.audit.chain import canonical

_SUFFIX = ".tar.gz"
_CALL_SECONDS, _LONG_CALL_SECONDS = 60.0, 3600.0
_LINES = 500
_PAGE = 100

T = TypeVar("T")
# A line of JSON, and the file of the export that it belongs to.
Line = tuple[str, str]


@dataclass(frozen=True, slots=True)
class ExportedOwner:
    """The file, its size, and how many sessions are in it."""

    file: str
    bytes: int
    sha256: str
    sessions: int


class OwnerExports:
    """Writes exports, one at a time."""

    def __init__(self, content: OwnersContent) -> None:
        self._content = content
        self._database = content.database
        self._threads = Threads("exports of owners", 1)

    async def remove_drafts(self) -> None:
        """Removes what exports have left that a kill has ended. Raises: AuditUnavailableError."""
        await self._call(partial(_remove_drafts, self._content.exports), _LONG_CALL_SECONDS)

    async def write(
        self, order: OwnerOrder, copied: AsyncIterator[Line] | None = None
    ) -> ExportedOwner:
        """Writes the file, which replaces an earlier one of that owner; this is on record.

        `copied` are lines of chains of other machines. Raises: ConflictError while a session of the
        owner has not ended; CapacityExhaustedError, AuditUnavailableError, StoreError.
        """
        content, owner = self._content, order.owner
        await self._database.read(partial(erasure_orders.check_ended, owner=owner))
        target, draft = export_of(content.exports, owner), draft_of(content.exports, owner)
        try:
            await self._call(partial(_make, draft))
            await self._call(partial(content.check_disk, content.exports))
            count = await self._write_sessions(owner, draft)
            await self._write_lines(draft, self._of_key(owner))
            if copied is not None:
                await self._write_lines(draft, copied)
            trees = await self._trees(owner)
            packing = partial(_pack, target, draft, trees)
            sha256, size = await self._call(packing, _LONG_CALL_SECONDS)
        finally:
            with suppress(AuditUnavailableError):  # the next start removes it
                await self._call(partial(shutil.rmtree, draft, ignore_errors=True))
        made = ExportedOwner(str(target), size, sha256, count)
        event = EventDraft(
            "owner.export",
            actor=order.asked_by,
            decision="allow",
            args={"key": owner},
            result={"bytes": size, "sha256": sha256, "sessions": count},
        )
        await content.recorder.record_of_key(owner, event, lambda connection: None)
        return made

    async def _write_sessions(self, owner: str, draft: Path) -> int:
        """Writes what the database has of each session; returns their number."""
        count, after = 0, ""
        while found := await self._database.read(
            partial(erased_rows.sessions, owner=owner, after=after)
        ):
            for session in found:
                await self._write_lines(draft, self._of_session(session.key))
                count += 1
            after = found[-1].key
        return count

    async def _of_session(self, key: str) -> AsyncIterator[Line]:
        line = await self._database.read(partial(exported_rows.session_line, key=key))
        yield line, "sessions.jsonl"
        for table in erased_rows.CONTENT_TABLES:
            after: object = None
            while True:
                lines, after = await self._database.read(
                    partial(exported_rows.lines_of, table=table, key=key, after=after)
                )
                for line in lines:
                    yield line, f"{table}.jsonl"
                if after is None:
                    break
        async for line in query.export(self._database, key):
            yield line, f"chains/{key}.jsonl"

    async def _of_key(self, owner: str) -> AsyncIterator[Line]:
        """What a key has itself."""
        content = self._content
        before = None
        while entries := await content.memory.page(owner, None, before, _PAGE):
            for entry in entries:
                yield _line(asdict(entry)), "memory.jsonl"
            before = entries[-1].id
        for secret in content.secrets.held_by(Holder(owner)):
            yield _line({"name": secret.name, **use_of(secret)}), "secrets.jsonl"
        for hook in hooks_of(content.hooks, owner):
            yield _line({"id": hook.id, "url": hook.url, "events": hook.events}), "hooks.jsonl"
        for each in await content.volumes.page(owner, ("", ""), _PAGE):  # a key has no more
            volume = each.volume
            shown = {"name": volume.name, "size_bytes": volume.size, "files": volume.files.id}
            yield _line(shown), "volumes.jsonl"
        after = ("", "")
        while snapshots := await content.snapshots.page(owner, None, after, _PAGE):
            for found in snapshots:
                yield _line(asdict(found.snapshot)), "snapshots.jsonl"
            after = (owner, snapshots[-1].snapshot.name or "")

    async def _trees(self, owner: str) -> dict[str, Path]:
        """Directories and files of the host by their names in the export; not all exist."""
        content = self._content
        found: dict[str, Path] = {}
        for workspace in await self._database.read(slots.kept):
            if workspace.owner == owner:
                await content.storage.mount(workspace)
                kind = "volumes" if workspace.is_volume else "workspaces"
                found[f"{kind}/{workspace.id}"] = content.storage.data(workspace)
        after = ("", "")
        while snapshots := await content.snapshots.page(owner, None, after, _PAGE):
            for shown in snapshots:
                for path in content.snapshots.paths(shown.snapshot):
                    found[f"snapshots/{path.name}"] = path
            after = (owner, snapshots[-1].snapshot.name or "")
        key = ""
        while sessions := await self._database.read(
            partial(erased_rows.sessions, owner=owner, after=key)
        ):
            for session in sessions:
                found[f"evidence/{session.key}"] = content.evidence / session.key
            key = sessions[-1].key
        key = ""
        while archives := await self._database.read(
            partial(erased_rows.archives, owner=owner, after=key)
        ):
            for _, file in archives:
                found[f"archives/{file}"] = content.archives / file
            key = archives[-1][0]
        return found

    async def _write_lines(self, draft: Path, lines: AsyncIterator[Line]) -> None:
        """Writes them in portions; those of one file follow each other."""
        portion: list[str] = []
        name = ""
        async for line, file in lines:
            if portion and (file != name or len(portion) == _LINES):
                await self._call(partial(_append, draft / name, portion))
                portion = []
            name = file
            portion.append(line)
        if portion:
            await self._call(partial(_append, draft / name, portion))

    async def _call(self, function: Callable[[], T], seconds: float = _CALL_SECONDS) -> T:
        try:
            return await self._threads.call(function, seconds)
        except (OSError, TimeoutError) as error:
            detail = str(error) or "the disk does not answer"
            raise AuditUnavailableError(f"nothing is exported: {detail}") from error


def export_of(directory: Path, owner: str) -> Path:
    """The file of an owner's export."""
    return directory / f"{owner}{_SUFFIX}"


def draft_of(directory: Path, owner: str) -> Path:
    """The directory in which it is made."""
    return directory / f".{owner}"


def hooks_of(hooks: Hooks, owner: str) -> list[Hook]:
    """The hooks that a key has added; those of admins about its sessions are theirs."""
    everything = hooks.visible(Principal("", Role.ADMIN))
    return [each for each in everything if each.managed_by == owner and not each.configured]


def _line(value: object) -> str:
    return canonical(value) + "\n"


def _make(draft: Path) -> None:
    draft.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(mode=0o700)


def _remove_drafts(exports: Path) -> None:
    for path in exports.glob(".*"):
        shutil.rmtree(path)


def _append(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(mode=0o700, exist_ok=True)
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
