"""Files of a workspace beside their bytes: what they are, searches, patches, copies and watches."""

from collections.abc import AsyncGenerator, Callable

from paddock.client.answers import read
from paddock.client.errors import ConnectionLostError, NotFoundError, event_error
from paddock.client.faces import F, Face, method, stream
from paddock.client.requests import given
from paddock.client.transport import Transport
from paddock.contract.file_trees import (
    FileChange,
    FileCopied,
    FileMatches,
    FileMode,
    FilePatched,
    WatchEnded,
)
from paddock.contract.files import FileRemoved, FileStat

# Twice what a worker of the sandbox may take.
_SECONDS = 60.0


class FileTrees(Face[F]):
    """The part of `Files` that moves no file's bytes between here and the workspace."""

    _path: str

    @method
    async def stat(self, path: str) -> FileStat:
        """What is at a path; a symbolic link is described, not followed. Raises: NotFoundError."""
        return await described(self._api, self._path, path)

    @method
    async def exists(self, path: str) -> bool:
        """Whether there is something at a path: a file, a directory, or a link to anything."""
        try:
            await described(self._api, self._path, path)
        except NotFoundError:
            return False
        return True

    @method
    async def search(
        self,
        text: str,
        path: str = ".",
        *,
        regex: bool = False,
        ignore_case: bool = False,
        glob: str | None = None,
        limit: int = 200,
    ) -> FileMatches:
        """The lines below a directory, or of a file, that have the text.

        `regex`: that match it as a regular expression, without back references and lookaround.
        `glob` chooses files, as in `list`. `truncated` of the answer: there may be more lines.
        """
        params = {
            **{"text": text, "path": path, "glob": glob, "limit": limit},
            **{"regex": regex or None, "ignore_case": ignore_case or None},
        }
        url = f"{self._path}/search"
        return read(FileMatches, await self._api.json("GET", url, params=params, timeout=_SECONDS))

    @method
    async def patch(self, patch: str, path: str = ".", *, dry_run: bool = False) -> FilePatched:
        """Applies a unified diff to files below a directory, all or nothing.

        With `dry_run`, only says what it would do. Raises: ConflictError if something does not
        apply: `fields["rejects"]` has the path, hunk, header and reason of each.
        """
        body = given(patch=patch, path=path, dry_run=dry_run)
        url = f"{self._path}/patch"
        return read(FilePatched, await self._api.json("POST", url, body=body, timeout=_SECONDS))

    @method
    async def copy(self, source: str, destination: str, *, parents: bool = False) -> FileCopied:
        """Copies a file, or a directory with all that is in it, as a whole or not at all.

        Permissions and times are kept. A file at the destination is replaced; a directory is not.
        With `parents`, missing directories above it are made.
        """
        body = given(source=source, destination=destination, parents=parents)
        url = f"{self._path}/copy"
        return read(FileCopied, await self._api.json("POST", url, body=body, timeout=_SECONDS))

    @method
    async def chmod(self, path: str, permissions: int) -> None:
        """Sets the nine permission bits, such as 0o755; a link is followed."""
        body = {"path": path, "permissions": f"{permissions & 0o777:04o}"}
        read(FileMode, await self._api.json("POST", f"{self._path}/chmod", body=body))

    @method
    async def delete(
        self, path: str, *, recursive: bool = False, if_match: str | None = None
    ) -> int:
        """Removes a file, a link, or an empty directory; returns how many there were.

        `recursive`: a directory with all that is in it. `if_match`: only if the path is still in
        the version of this `etag` of `stat`; raises PreconditionFailedError otherwise.
        """
        answer = await self._api.json(
            "DELETE",
            self._path,
            params={"path": path, "recursive": recursive or None},
            timeout=_SECONDS,
            headers=conditions(if_match),
        )
        return read(FileRemoved, answer).removed

    @stream
    def watch(
        self,
        path: str = ".",
        *,
        recursive: bool = True,
        on_ready: Callable[[], None] | None = None,
    ) -> AsyncGenerator[FileChange, None]:
        """The changes below a directory, from the first iteration on, until the directory is gone.

        `on_ready` is called when the watch has begun. After a change of the kind `overflow`, read
        again what you need: changes are missing. Raises: ConnectionLostError if the connection
        breaks: a new watch tells nothing of what happened meanwhile.
        """
        return _changes(self._api, self._path, path, recursive, on_ready)


async def described(api: Transport, url: str, path: str) -> FileStat:
    """What is at a path."""
    return read(FileStat, await api.json("GET", f"{url}/stat", params={"path": path}))


def conditions(if_match: str | None, *, create: bool = False) -> dict[str, str]:
    """The headers for a version that a file must have, or for none."""
    headers = {} if if_match is None else {"If-Match": f'"{if_match}"'}
    return headers | ({"If-None-Match": "*"} if create else {})


async def _changes(
    api: Transport,
    url: str,
    path: str,
    recursive: bool,
    on_ready: Callable[[], None] | None,
) -> AsyncGenerator[FileChange, None]:
    params = {"path": path, "recursive": recursive}
    async with api.events("GET", f"{url}/events", params=params) as events:
        async for event in events:
            if event.name == "ready" and on_ready is not None:
                on_ready()
            elif event.name == "change":
                yield read(FileChange, event.data)
            elif event.name == "error":
                raise event_error(event.data)
            elif event.name == "end":
                read(WatchEnded, event.data)
                return
    raise ConnectionLostError("the watch ended without a word")
