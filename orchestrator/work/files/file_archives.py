"""Trees of a workspace as one stream, packed and unpacked by the sandbox's agent."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

from orchestrator.ground.errors import PaddockError, SandboxUnavailableError, TooLargeError
from orchestrator.host.link.messages import malformed
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session
from orchestrator.work.files.file_agent import FileAgent
from orchestrator.work.files.file_entries import whole_number
from orchestrator.work.files.file_requests import FileRequests, stream_of
from orchestrator.work.files.file_stream import FileStream
from sandbox_agent.decide.protocol import Message

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_SKIPPED_NAMES = 64
_LONGEST_NAME = 4096
# Unpacking a zip archive takes steps of 2 s.
_MOST_SECONDS = 3600.0
_MOST_STEPS = 1800
# What an archive has besides the contents of its files: headers, of empty files as well.
_MOST_HEADERS = 512 * 1024 * 1024


class ArchiveSummary(NamedTuple):
    """What an archive holds; `paths_sha256` is the digest of all paths, each followed by a NUL.

    `skipped`: how many entries are left out; `skipped_names` are the first of them, printable.
    """

    files: int
    directories: int
    links: int
    bytes: int
    paths_sha256: str
    skipped: int
    skipped_names: tuple[str, ...]


class ArchiveDownload:
    """A directory being packed. The caller must close it."""

    def __init__(self, stream: FileStream, summary: ArchiveSummary) -> None:
        self._stream = stream
        self.summary = summary
        self.skipped, self.skipped_names = summary.skipped, summary.skipped_names

    async def chunks(self) -> AsyncIterator[bytes]:
        """The archive, in chunks of at most 256 KiB.

        Raises: ConflictError if a file became shorter meanwhile; SandboxUnavailableError.
        """
        left = self.summary.bytes + _MOST_HEADERS
        async with contextlib.aclosing(self._stream.chunks()) as chunks:
            async for chunk in chunks:
                left -= len(chunk)
                if left < 0:
                    raise SandboxUnavailableError("the archive is longer than the agent announced")
                yield chunk

    async def close(self) -> None:
        """Releases the stream."""
        await self._stream.close()


class FileArchives:
    """Archives of directories, `tar` or `zip`. Each one is a single event.

    Both methods raise what those of `Files` do.
    """

    def __init__(self, requests: FileRequests) -> None:
        self._requests = requests

    async def pack(
        self, principal: Principal, session: Session, path: str, kind: str
    ) -> ArchiveDownload:
        """Opens a directory for packing; what it holds is recorded before its first byte."""
        link, path = await self._requests.prepare(principal, session, "file.pack", path, whole=True)
        opened = await self._requests.open(link, "pack", path, format=kind, most_bytes=0)
        stream = stream_of(link, opened)
        try:
            return ArchiveDownload(stream, _summary(opened))
        except BaseException:
            await stream.close()
            raise

    async def unpack(
        self,
        principal: Principal,
        session: Session,
        path: str,
        kind: str,
        chunks: AsyncIterator[bytes],
    ) -> ArchiveSummary:
        """Unpacks an archive into a directory, which is created if missing.

        Each file appears as a whole, as soon as it has arrived. What was written before a failure
        stays, and the event says what it was.

        Raises: PermissionDeniedError for an entry that would leave the directory, ValidationError
        for others that can't be written and for a damaged archive, TooLargeError.
        """
        link, path = await self._requests.prepare(
            principal, session, "file.unpack", path, whole=True
        )
        most = session.limits.workspace_bytes
        opened = await self._requests.open(link, "unpack", path, format=kind, most_bytes=most)
        stream = stream_of(link, opened)
        finish = {"stream": whole_number(opened, "stream"), "commit": True}
        try:
            await stream.push(chunks, most + _MOST_HEADERS)
            return await self._finished(link, finish)
        except BaseException:
            await stream.close()
            # The reason why it failed is the answer, even if the agent is gone now.
            with contextlib.suppress(PaddockError):
                await link.settled()
            raise

    async def _finished(self, link: FileAgent, finish: Message) -> ArchiveSummary:
        """Unpacks the rest. Raises: TooLargeError if that takes too long."""
        try:
            async with asyncio.timeout(_MOST_SECONDS):
                for _ in range(_MOST_STEPS):
                    done = await self._requests.ask(link, "file.close", finish)
                    if done.get("more") is not True:
                        return _summary(done)
        except TimeoutError:
            pass
        raise TooLargeError("the archive takes too long to unpack")


def _summary(answer: Message) -> ArchiveSummary:
    """Raises: SandboxUnavailableError for a malformed answer."""
    summary = answer.get("summary")
    if not isinstance(summary, dict):
        raise malformed()
    digest = summary.get("paths_sha256")
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise malformed()
    files, directories, links, size = (
        whole_number(summary, name) for name in ("files", "directories", "links", "bytes")
    )
    # An agent that an older control plane started leaves nothing out.
    skipped = whole_number({"skipped": 0} | summary, "skipped")
    names = _names(summary.get("skipped_names", []))
    return ArchiveSummary(files, directories, links, size, digest, skipped, names)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > _MOST_SKIPPED_NAMES:
        raise malformed()
    if not all(isinstance(name, str) and len(name) <= _LONGEST_NAME for name in value):
        raise malformed()
    return tuple(value)
