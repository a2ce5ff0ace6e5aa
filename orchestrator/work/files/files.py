"""Files of a workspace, read and written through the sandbox's agent."""

import hashlib
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from orchestrator.ground.errors import ConflictError
from orchestrator.ground.fault_points import FaultPoint
from orchestrator.host.link.messages import malformed
from orchestrator.host.workspace.paths import leads_inside
from orchestrator.rules.access.keys import Principal
from orchestrator.sandbox.packs.decisions import visible
from orchestrator.state.session import Session
from orchestrator.work.files.downloads import FileDownload, MemoryStream, Range, part_of, whole
from orchestrator.work.files.file_entries import (
    NO_ATTRIBUTES,
    FileEntry,
    Listing,
    parse_entry,
    parse_version,
    whole_number,
)
from orchestrator.work.files.file_requests import (
    NO_CONDITIONS,
    Conditions,
    FileRequests,
    check_path,
    stream_of,
)
from paddock.contract.pack_form import absolute
from sandbox_agent.decide.protocol import Message

_MOST_ENTRIES = 10_000


class Written(NamedTuple):
    """How many bytes were written, and the entity tag of the file, except after appending."""

    bytes: int
    version: str | None


class Files:
    """File operations. Each is recorded before it is answered.

    Paths are relative to the workspace, or absolute under its path. Levels that allow any command
    also accept other paths, for reading, and for writing in /tmp. All methods raise ValidationError
    for a malformed path, PermissionDeniedError for one that leaves the workspace, NotFoundError,
    ConflictError (not a regular file, not empty, …), BusyError, SandboxUnavailableError,
    AuditUnavailableError, the errors of `Session.check_open`, and RateLimitedError,
    CapacityExhaustedError if there is no room to record them.
    """

    def __init__(self, requests: FileRequests) -> None:
        self._requests = requests

    async def read(
        self,
        principal: Principal,
        session: Session,
        path: str,
        *,
        links: bool = True,
        wanted: Range | None = None,
    ) -> FileDownload:
        """Opens a file for reading; without `links`, only if no symbolic link leads to it.

        `wanted` is the range of bytes that is read. Raises: RangeNotSatisfiableError.

        In a session with a context pack, only files of the pack can be read, with the content that
        the pack states.
        Raises: ConflictError if the sandbox is too old to check that.
        """
        if session.pack is not None:
            return await self.read_packed(principal, session, path, wanted=wanted)
        return await self._open(principal, session, path, links=links, wanted=wanted)

    async def read_packed(
        self,
        principal: Principal,
        session: Session,
        path: str,
        stated: str | None = None,
        *,
        wanted: Range | None = None,
    ) -> FileDownload:
        """A file of the session's pack, for a reader who states that hash of it.

        Its whole content is read and compared before the first byte is returned. Raises:
        PermissionDeniedError if the pack denies it; TooLargeError for more than 16 MiB.
        """
        pack, firewall = session.pack, self._requests.firewall
        if pack is None:
            raise ConflictError("the session has no context pack")
        file = await firewall.file(principal, session, pack, path, stated)
        opened = await self._open(principal, session, file.path, links=False)
        try:
            data = await whole(opened)
        finally:
            await opened.close()
        found = f"sha256:{hashlib.sha256(data).hexdigest()}"
        await firewall.verify(principal, session, pack, file, found)
        part = None if wanted is None else part_of(len(data), wanted)
        kept = data if part is None else data[part[0] : sum(part)]
        return FileDownload(
            *(MemoryStream(kept), len(data), opened.permissions, found, opened.modified),
            version=found,
            part=part,
        )

    async def _open(
        self,
        principal: Principal,
        session: Session,
        path: str,
        *,
        links: bool,
        wanted: Range | None = None,
    ) -> FileDownload:
        link, path = await self._requests.prepare(principal, session, "file.read", path)
        chosen: Message = {} if links else {"links": False}
        if wanted is not None:
            chosen |= {"range": list(wanted)}
        opened = await self._requests.open(link, "read", path, **chosen)
        if not links and opened.get("links") is not False:
            await stream_of(link, opened).close()
            raise ConflictError(
                "the sandbox was made before files could be read without following links: set the "
                "session's permission level again"
            )
        # Agents of older sandboxes do not report it.
        known = opened.get("permissions") is not None
        permissions = whole_number(opened, "permissions") & 0o777 if known else 0o644
        size, modified = whole_number(opened, "size"), opened.get("modified")
        if not (modified is None or (type(modified) is int and abs(modified) < 2**63)):
            raise malformed()
        part = None
        if wanted is not None:
            part = whole_number(opened, "start"), whole_number(opened, "length")
        return FileDownload(
            stream_of(link, opened),
            size,
            permissions,
            modified=modified,
            version=parse_version(opened.get("version")),
            part=part,
        )

    async def write(
        self,
        principal: Principal,
        session: Session,
        path: str,
        mode: str,
        chunks: AsyncIterator[bytes],
        permissions: int | None = None,
        *,
        parents: bool = False,
        modified: int | None = None,
    ) -> int:
        """The bytes written, as `put` writes them."""
        given = principal, session, path, mode, chunks, permissions
        return (await self.put(*given, parents=parents, modified=modified)).bytes

    async def put(
        self,
        principal: Principal,
        session: Session,
        path: str,
        mode: str,
        chunks: AsyncIterator[bytes],
        permissions: int | None = None,
        *,
        parents: bool = False,
        modified: int | None = None,
        conditions: Conditions = NO_CONDITIONS,
        attributes: Mapping[str, str] = NO_ATTRIBUTES,
    ) -> Written:
        """Writes a file, replacing it (`overwrite`) or at its end (`append`).

        It takes effect as a whole after the last chunk: if `chunks` raises, or the call
        is cancelled, nothing has changed. `permissions` are the nine bits that a replaced
        or new file gets; without them a file keeps its own. `modified` is the time of its last
        change in seconds; None: now. With `parents`, missing directories above it are made.
        `conditions` are checked in one step with the replacement: PreconditionFailedError.
        `attributes` are the extended ones of a replaced or new file, by names that begin with
        `user.`; it has no others.
        """
        operation = "append" if mode == "append" else "write"
        link, path = await self._requests.prepare(principal, session, "file.write", path)
        facts: Message = {"permissions": permissions, "modified": modified, "parents": parents}
        if attributes:
            facts["attributes"] = dict(attributes)
        opened = await self._requests.open(link, operation, path, **facts, **conditions.params())
        FaultPoint.FILE_OPENED.reached()
        stream = stream_of(link, opened)
        try:
            await stream.push(chunks, session.limits.workspace_bytes)
            FaultPoint.FILE_PUSHED.reached()
            commit = {"stream": whole_number(opened, "stream"), "commit": True}
            done = await self._requests.ask(link, "file.close", commit)
            FaultPoint.FILE_COMMITTED.reached()
        except BaseException:
            await stream.close()
            raise
        await link.settled()
        return Written(whole_number(done, "bytes"), parse_version(done.get("version")))

    async def list(
        self,
        principal: Principal,
        session: Session,
        path: str,
        depth: int,
        glob: str | None = None,
        *,
        attributes: str | None = None,
    ) -> Listing:
        """What a directory holds, `depth` levels down; with `glob`, only what matches it.

        `attributes` is the prefix of the extended ones that are told, too.
        """
        link, path = await self._requests.prepare(principal, session, "file.list", path, whole=True)
        params: Message = {"path": path, "depth": depth, "limit": _MOST_ENTRIES, "glob": glob}
        if attributes is not None:
            params["attributes"] = attributes
        listed = await self._requests.ask(link, "file.list", params)
        entries = listed.get("entries")
        if not isinstance(entries, list):
            raise malformed()
        found = tuple(parse_entry(entry) for entry in entries)
        if (pack := session.pack) is not None:
            found = tuple(entry for entry in found if visible(pack, absolute(entry.path)))
        return Listing(found, listed.get("truncated") is True)

    async def stat(
        self, principal: Principal, session: Session, path: str, *, attributes: str | None = None
    ) -> FileEntry:
        """One file, directory or link, which is not followed; `attributes` as for `list`."""
        link, path = await self._requests.prepare(principal, session, "file.stat", path, whole=True)
        params: Message = {"path": path}
        if attributes is not None:
            params["attributes"] = attributes
        return parse_entry(await self._requests.ask(link, "file.stat", params))

    async def chmod(
        self, principal: Principal, session: Session, path: str, permissions: int
    ) -> None:
        """Sets the nine permission bits of a file or directory."""
        link, path = await self._requests.prepare(principal, session, "file.chmod", path)
        await self._requests.ask(link, "file.chmod", {"path": path, "permissions": permissions})

    async def mkdir(self, principal: Principal, session: Session, path: str) -> None:
        """Creates a directory and its parents."""
        link, path = await self._requests.prepare(principal, session, "file.mkdir", path)
        await self._requests.ask(link, "file.mkdir", {"path": path})

    async def delete(
        self,
        principal: Principal,
        session: Session,
        path: str,
        *,
        recursive: bool = False,
        conditions: Conditions = NO_CONDITIONS,
    ) -> int:
        """Removes a file, a link or an empty directory, or `recursive`ly all that is in it.

        Returns how many there were. `conditions` are about the path itself.
        """
        link, path = await self._requests.prepare(
            principal, session, "file.delete", path, tree=recursive
        )
        params = {"path": path, "recursive": recursive, **conditions.params()}
        done = await self._requests.ask(link, "file.delete", params)
        return whole_number({"removed": 1} | done, "removed")

    async def move(
        self, principal: Principal, session: Session, source: str, destination: str
    ) -> None:
        """Renames a file or directory; a file at the destination is replaced."""
        link, source = await self._requests.prepare(
            principal, session, "file.move", source, name="source"
        )
        _, destination = await self._requests.prepare(
            principal, session, "file.move", destination, name="destination"
        )
        await self._requests.ask(link, "file.move", {"source": source, "destination": destination})

    async def symlink(self, principal: Principal, session: Session, path: str, target: str) -> None:
        """Creates a symbolic link, whose target is relative to it and inside the workspace."""
        link, path = await self._requests.prepare(principal, session, "file.symlink", path)
        check_path(target, "target")
        if not leads_inside(path, target):
            raise await self._requests.escape(principal, session, "file.symlink", "target", target)
        await self._requests.ask(link, "file.symlink", {"path": path, "target": target})
