"""Files of a session's workspace."""

import os
import re
import secrets
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO

from paddock.client import directories
from paddock.client.errors import LimitError
from paddock.client.faces import F, Face, Link, method, stream
from paddock.client.parsing import read
from paddock.client.results import Transfer
from paddock.client.transport import Transport
from paddock.contract.files import FileList, FileWritten

_SILENCE_SECONDS = 60.0
_TRANSFER_SECONDS = 3600.0
GIB = 1024**3
_PERMISSIONS_HEADER = "X-Paddock-Permissions"

Content = bytes | str | BinaryIO | AsyncIterable[bytes]


class Files(Face[F]):
    """File operations. Paths are relative to the workspace, or absolute under /workspace.

    At levels that allow any command, files elsewhere can be read, and those in /tmp written.

    All methods raise `PaddockAPIError` in the class of its code (PermissionDeniedError for a
    path that leaves the workspace, NotFoundError, ConflictError for what is no regular file),
    and the other errors of `paddock.client.errors`.
    """

    def __init__(self, link: Link, path: str) -> None:
        super().__init__(link)
        self._path = f"{path}/files"

    @method
    async def read(self, path: str, *, max_bytes: int = GIB) -> bytes:
        """A file's content. Raises: LimitError where it has more than `max_bytes`."""
        content = bytearray()
        async with aclosing(pieces(self._api, self._path, path)) as arriving:
            async for piece in arriving:
                content += piece
                if len(content) > max_bytes:
                    raise LimitError(f"{path} has more than {max_bytes} bytes")
        return bytes(content)

    @stream
    async def read_stream(self, path: str) -> AsyncGenerator[bytes, None]:
        """A file's content in pieces, as they arrive.

        Raises: ConnectionLostError when the file has become shorter meanwhile.
        """
        async with aclosing(pieces(self._api, self._path, path)) as arriving:
            async for piece in arriving:
                yield piece

    @method
    async def download(self, path: str, local: str | Path) -> int:
        """Copies a file to a local path; returns its size in bytes.

        It appears whole or not at all, with its permissions as far as the umask lets them; a file
        that is there is replaced. Raises: OSError for what can't be written.
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
    ) -> int:
        """Writes a file, whole or not at all; returns its size in bytes.

        Text is encoded as UTF-8; a binary file is read, and closed. A file that is there is
        replaced, and keeps its mode, where no `permissions` (as 0o755) are given. Directories
        must be there, unless `parents` makes them.
        """
        return await put(
            self._api, self._path, path, content, "overwrite", permissions, parents=parents
        )

    @method
    async def append(self, path: str, content: Content, *, parents: bool = False) -> int:
        """Adds to the end of a file, or makes it; returns the bytes added."""
        return await put(self._api, self._path, path, content, "append", parents=parents)

    @method
    async def mkdir(self, path: str) -> None:
        """Makes a directory and those above it; one that is there is fine."""
        await make_directory(self._api, self._path, path)

    @method
    async def symlink(self, path: str, target: str) -> None:
        """Makes a symbolic link to `target`, which is relative to it and in the workspace.

        A file or link that is there is replaced.
        """
        await make_link(self._api, self._path, path, target)

    @method
    async def move(self, source: str, destination: str) -> None:
        """Renames a file or directory; a file at the destination is replaced."""
        body = {"source": source, "destination": destination}
        await self._api.json("POST", f"{self._path}/move", body=body)

    @method
    async def delete(self, path: str) -> None:
        """Removes a file, a link, or an empty directory."""
        await self._api.json("DELETE", self._path, params={"path": path})

    @method
    async def list(self, path: str = ".", *, depth: int = 1) -> FileList:
        """What a directory holds, 1 to 64 levels deep, links not followed."""
        return await listing(self._api, self._path, path, depth)

    @method
    async def upload_dir(self, local: str | Path, path: str = ".") -> Transfer:
        """Copies a local directory's content into a directory of the workspace.

        Files that are there are replaced, others stay; each gets its local permissions,
        directories 0755.
        Symbolic links are not followed: those that lead to what is in the directory, by a
        relative path, are made anew, others skipped, like sockets, devices and names that are
        not UTF-8. Some files are sent at a time; the first failure ends it, what was sent stays.
        Raises: OSError for what can't be read.
        """
        return await directories.upload(_Remote(self._api, self._path), Path(local), path)

    @method
    async def download_dir(self, path: str, local: str | Path, *, max_bytes: int = GIB) -> Transfer:
        """Copies a directory of the workspace into a local directory, made where it is not.

        Nothing is written outside of `local`, whatever the workspace holds and whatever links
        `local` has in it. Files that are there are replaced, each as a whole, and get the
        permissions that they have there as far as the umask lets them. Symbolic links that lead
        to what is in the directory, by a relative path, are made anew; others are skipped, like
        what vanishes meanwhile. The first failure ends it.
        Raises: LimitError for more than `max_bytes` in all; OSError for what can't be written.
        """
        remote = _Remote(self._api, self._path)
        return await directories.download(remote, path, Path(local), max_bytes)


class _Remote:
    """The workspace's side of a directory's transfer."""

    def __init__(self, api: Transport, url: str) -> None:
        self._api = api
        self._url = url

    def pieces(self, path: str) -> AsyncGenerator[bytes, None]:
        """A file's content."""
        return pieces(self._api, self._url, path)

    async def put(self, path: str, content: BinaryIO, permissions: int) -> int:
        """Replaces a file."""
        return await put(self._api, self._url, path, content, "overwrite", permissions)

    async def link(self, path: str, target: str) -> None:
        """Makes a symbolic link."""
        await make_link(self._api, self._url, path, target)

    async def mkdir(self, path: str) -> None:
        """Makes a directory and those above it."""
        await make_directory(self._api, self._url, path)

    async def list(self, path: str, depth: int) -> FileList:
        """What a directory holds."""
        return await listing(self._api, self._url, path, depth)


async def pieces(
    api: Transport,
    url: str,
    path: str,
    heed: Callable[[Mapping[str, str]], None] | None = None,
) -> AsyncGenerator[bytes, None]:
    """A file's content as it arrives; `heed` is told the answer's headers before."""
    async with api.open(
        "GET",
        url,
        params={"path": path},
        content_type="application/octet-stream",
        silence=_SILENCE_SECONDS,
        heed=heed,
    ) as arriving:
        async for piece in arriving:
            yield piece


async def fetch(api: Transport, url: str, path: str, local: Path) -> int:
    """Copies a file to a local path; returns its size in bytes. Raises: OSError."""
    seen: dict[str, str] = {}

    def heed(headers: Mapping[str, str]) -> None:
        seen["permissions"] = headers.get(_PERMISSIONS_HEADER, "")

    draft = local.with_name(f".{local.name}.{secrets.token_hex(4)}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    size = 0
    async with aclosing(pieces(api, url, path, heed)) as arriving:
        first = await anext(arriving, b"")  # the headers are there now
        try:
            with os.fdopen(os.open(draft, flags, _permissions(seen["permissions"])), "wb") as file:
                size += file.write(first)
                async for piece in arriving:
                    size += file.write(piece)
            draft.replace(local)
        finally:
            draft.unlink(missing_ok=True)
    return size


def _permissions(text: str) -> int:
    """The nine bits; 0o644 where an older control plane does not tell of them."""
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
) -> int:
    """Writes a file; returns the bytes that the control plane counted."""
    octal = None if permissions is None else f"{permissions & 0o777:04o}"
    answer = await api.json(
        "PUT",
        url,
        params={"path": path, "mode": mode, "permissions": octal, "parents": parents or None},
        timeout=_TRANSFER_SECONDS,
        data=content.encode() if isinstance(content, str) else content,
    )
    return read(FileWritten, answer).bytes


async def make_directory(api: Transport, url: str, path: str) -> None:
    """Makes a directory and those above it."""
    await api.json("POST", f"{url}/mkdir", body={"path": path})


async def make_link(api: Transport, url: str, path: str, target: str) -> None:
    """Makes a symbolic link."""
    await api.json("POST", f"{url}/symlink", body={"path": path, "target": target})


async def listing(api: Transport, url: str, path: str, depth: int) -> FileList:
    """What a directory holds."""
    params = {"path": path, "depth": depth}
    return read(FileList, await api.json("GET", f"{url}/list", params=params))
