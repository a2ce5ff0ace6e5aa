"""Files of a session's workspace."""

import os
import re
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from paddock.client import directories
from paddock.client.answers import read
from paddock.client.errors import ArgumentError, LimitError
from paddock.client.faces import F, Link, method, stream
from paddock.client.file_trees import FileTrees, conditions
from paddock.client.local_directory import draft_of
from paddock.client.results import Transfer
from paddock.client.tar_stream import Progress
from paddock.client.transport import Transport
from paddock.contract.files import ArchiveWritten, FileList, FileWritten

_SILENCE_SECONDS = 60.0
_TRANSFER_SECONDS = 3600.0
GIB = 1024**3
_PERMISSIONS_HEADER = "X-Paddock-Permissions"
_MODIFIED_HEADER = "X-Paddock-Modified"

Content = bytes | str | BinaryIO | AsyncIterable[bytes]


class Files(FileTrees[F]):
    """File operations. Paths are relative to the workspace, or absolute below its path.

    At levels that allow any command, other files can be read, and files in /tmp written. All
    methods raise `PaddockAPIError` in the class of its code (PermissionDeniedError for a path that
    leaves the workspace, NotFoundError, ConflictError for something that is not a regular file),
    and the other errors of `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/files"

    @method
    async def read(
        self, path: str, *, max_bytes: int = GIB, offset: int = 0, length: int | None = None
    ) -> bytes:
        """A file's content, or `length` bytes of it from `offset` on; -N: the last N bytes.

        Raises: LimitError if that is more than `max_bytes`; RangeNotSatisfiableError if the file
        has none of these bytes.
        """
        wanted = byte_range(offset, length)
        return await content_of(self._api, self._path, path, max_bytes, wanted)

    @method
    async def read_text(self, path: str, *, max_bytes: int = GIB, encoding: str = "utf-8") -> str:
        """A file's text. Raises: UnicodeDecodeError; LimitError for more than `max_bytes`."""
        return (await content_of(self._api, self._path, path, max_bytes, {})).decode(encoding)

    @stream
    def read_stream(self, path: str) -> AsyncGenerator[bytes, None]:
        """A file's content in pieces, as they arrive.

        Raises: ConnectionLostError if the file became shorter meanwhile.
        """
        return pieces(self._api, self._path, path)

    @method
    async def download(self, path: str, local: str | Path) -> int:
        """Copies a file to a local path; returns its size in bytes.

        It appears completely or not at all, with its permissions reduced by the umask and the time
        of its last change; an existing file is replaced. Raises: OSError if it can't be written.
        """
        return await fetch(self._api, self._path, path, Path(local))

    @method
    async def write(
        self,
        path: str,
        content: Content,
        *,
        permissions: int | None = None,
        parents: bool = False,
        modified: int | None = None,
        if_match: str | None = None,
        create: bool = False,
    ) -> int:
        """Writes a file, completely or not at all; returns its size in bytes.

        Text is encoded as UTF-8; a binary file is read, and closed. An existing file is replaced,
        and keeps its mode unless `permissions` (such as 0o755) are given. Directories must exist,
        unless `parents` creates them. `modified` is the time of its last change, in seconds since
        1970-01-01; None: now.

        `if_match`: only if the file is still in the version of this `etag` of `stat`; `create`:
        only if there is no file. Raises: PreconditionFailedError otherwise.
        """
        return await put(
            *(self._api, self._path, path, content, "overwrite", permissions),
            parents=parents,
            modified=modified,
            headers=conditions(if_match, create=create),
        )

    @method
    async def append(self, path: str, content: Content, *, parents: bool = False) -> int:
        """Appends to a file, or creates it; returns the bytes added."""
        return await put(self._api, self._path, path, content, "append", parents=parents)

    @method
    async def mkdir(self, path: str) -> None:
        """Creates a directory and its parents; an existing one is no error."""
        await make_directory(self._api, self._path, path)

    @method
    async def symlink(self, path: str, target: str) -> None:
        """Creates a symbolic link to `target`, which is relative to the link and in the workspace.

        An existing file or link is replaced.
        """
        await make_link(self._api, self._path, path, target)

    @method
    async def move(self, source: str, destination: str) -> None:
        """Renames a file or directory; replaces a file at the destination."""
        body = {"source": source, "destination": destination}
        await self._api.json("POST", f"{self._path}/move", body=body)

    @method
    async def list(
        self, path: str = ".", *, depth: int | None = None, glob: str | None = None
    ) -> FileList:
        """The content of a directory, 1 to 64 levels deep; links are not followed.

        `glob` chooses by the paths below the directory, and without a slash by the names. `depth`
        is 1 by default, and 64 with `glob`.
        """
        return await listing(self._api, self._path, path, depth, glob)

    @method
    async def upload_dir(
        self,
        local: str | Path,
        path: str = ".",
        *,
        only: Sequence[str] | None = None,
        progress: Progress | None = None,
    ) -> Transfer:
        """Copies a local directory's content into a directory of the workspace.

        Existing files are replaced, others stay. Each file gets its local permissions, new
        directories get 0755. Symbolic links are not followed: relative ones that lead to something
        in the directory are recreated; others are skipped, like sockets and devices. The first
        failure ends the transfer, and what was sent stays. `progress` is called in a thread with
        the files and bytes so far. `only`: these files, relative to `local`, and nothing else.

        Raises: OSError for a file that can't be read.
        """
        remote = _Remote(self._api, self._path)
        return await directories.upload(remote, Path(local), path, progress, only)

    @method
    async def download_dir(
        self,
        path: str,
        local: str | Path,
        *,
        max_bytes: int = GIB,
        progress: Progress | None = None,
    ) -> Transfer:
        """Copies a directory of the workspace into a local directory, which is created if missing.

        Nothing is written outside `local`, whatever the workspace contains and whatever links
        `local` has in it. Existing files are replaced, each as a whole, and get their permissions
        reduced by the umask. Symbolic links that lead to something in the directory by a relative
        path are recreated; others are skipped, like FIFOs, and what the session may not read. The
        first failure ends the transfer. `progress` is called in a thread with the files and bytes
        so far.

        Raises: LimitError for more than `max_bytes` in all; OSError for a file that can't be
        written.
        """
        remote = _Remote(self._api, self._path)
        return await directories.download(remote, path, Path(local), max_bytes, progress)


class _Remote:
    """The workspace side of a directory transfer."""

    def __init__(self, api: Transport, url: str) -> None:
        self._api = api
        self._url = f"{url}/archive"

    def packed(
        self, path: str, heed: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        """A directory's archive."""
        return pieces(self._api, self._url, path, heed)

    async def unpack(self, path: str, archive: AsyncGenerator[bytes, None]) -> ArchiveWritten:
        """Unpacks an archive into a directory."""
        answer = await self._api.json(
            "PUT", self._url, params={"path": path}, timeout=_TRANSFER_SECONDS, data=archive
        )
        return read(ArchiveWritten, answer)


async def pieces(
    api: Transport,
    url: str,
    path: str,
    heed: Callable[[Mapping[str, str]], None] | None = None,
    headers: Mapping[str, str] | None = None,
) -> AsyncGenerator[bytes, None]:
    """A file's content as it arrives; `heed` receives the answer's headers first."""
    async with api.open(
        "GET",
        url,
        params={"path": path},
        content_type="application/octet-stream",
        silence=_SILENCE_SECONDS,
        heed=heed,
        headers=headers or {},
    ) as arriving:
        async for piece in arriving:
            yield piece


async def content_of(
    api: Transport, url: str, path: str, max_bytes: int, headers: Mapping[str, str]
) -> bytes:
    """A file's content. Raises: LimitError."""
    found = bytearray()
    async with aclosing(pieces(api, url, path, headers=headers)) as arriving:
        async for piece in arriving:
            found += piece
            if len(found) > max_bytes:
                raise LimitError(f"{path} has more than {max_bytes} bytes")
    return bytes(found)


def byte_range(offset: int, length: int | None) -> dict[str, str]:
    """The header for a part of a file. Raises: ArgumentError."""
    if length is not None and (length < 1 or offset < 0):
        raise ArgumentError("length must be at least 1, and offset not negative with it")
    if offset < 0:
        return {"Range": f"bytes={offset}"}
    if not offset and length is None:
        return {}
    last = "" if length is None else str(offset + length - 1)
    return {"Range": f"bytes={offset}-{last}"}


async def fetch(api: Transport, url: str, path: str, local: Path) -> int:
    """Copies a file to a local path; returns its size in bytes. Raises: OSError."""
    seen: dict[str, str] = {}

    def heed(headers: Mapping[str, str]) -> None:
        seen["permissions"] = headers.get(_PERMISSIONS_HEADER, "")
        seen["modified"] = headers.get(_MODIFIED_HEADER, "")

    draft = draft_of(local)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    size = 0
    async with aclosing(pieces(api, url, path, heed)) as arriving:
        first = await anext(arriving, b"")  # the headers have arrived
        try:
            with os.fdopen(os.open(draft, flags, _permissions(seen["permissions"])), "wb") as file:
                size += file.write(first)
                async for piece in arriving:
                    size += file.write(piece)
                file.flush()
                if re.fullmatch(r"-?[0-9]{1,11}", seen["modified"]):
                    os.utime(file.fileno(), (int(seen["modified"]), int(seen["modified"])))
            draft.replace(local)
        finally:
            draft.unlink(missing_ok=True)
    return size


def _permissions(text: str) -> int:
    """The nine permission bits; 0o644 if an older control plane does not send them."""
    return int(text, 8) & 0o777 if re.fullmatch(r"[0-7]{1,6}", text) else 0o644


async def put(
    api: Transport,
    url: str,
    path: str,
    content: Content,
    mode: str,
    permissions: int | None = None,
    *,
    parents: bool = False,
    modified: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> int:
    """Writes a file; returns the byte count of the control plane."""
    octal = None if permissions is None else f"{permissions & 0o777:04o}"
    answer = await api.json(
        "PUT",
        url,
        params={
            **{"path": path, "mode": mode, "permissions": octal},
            **{"parents": parents or None, "modified": modified},
        },
        timeout=_TRANSFER_SECONDS,
        data=content.encode() if isinstance(content, str) else content,
        headers=headers,
    )
    return read(FileWritten, answer).bytes


async def make_directory(api: Transport, url: str, path: str) -> None:
    """Makes a directory and those above it."""
    await api.json("POST", f"{url}/mkdir", body={"path": path})


async def make_link(api: Transport, url: str, path: str, target: str) -> None:
    """Makes a symbolic link."""
    await api.json("POST", f"{url}/symlink", body={"path": path, "target": target})


async def listing(
    api: Transport, url: str, path: str, depth: int | None, glob: str | None
) -> FileList:
    """What a directory holds."""
    params = {"path": path, "depth": depth, "glob": glob}
    return read(FileList, await api.json("GET", f"{url}/list", params=params))
