"""Transfers whole directories to and from a workspace, each as one archive."""

import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Protocol

from paddock.client.errors import PaddockError
from paddock.client.local_directory import Directory, Names, finally_off_loop, off_loop, walk
from paddock.client.results import Transfer
from paddock.client.tar_stream import Progress, Receiving, Sending
from paddock.contract.files import ArchiveWritten

_SKIPPED = "X-Paddock-Skipped"
_SKIPPED_NAMES = "X-Paddock-Skipped-Names"


class Remote(Protocol):
    """The workspace side of a transfer."""

    def packed(
        self, path: str, heed: Callable[[Mapping[str, str]], None]
    ) -> AsyncGenerator[bytes, None]:
        """A directory's archive; `heed` receives the answer's headers first."""

    async def unpack(self, path: str, archive: AsyncGenerator[bytes, None]) -> ArchiveWritten:
        """Unpacks an archive into a directory."""


async def upload(
    remote: Remote,
    local: Path,
    path: str,
    progress: Progress | None = None,
    only: Sequence[str] | None = None,
) -> Transfer:
    """Sends what is beneath `local`: regular files, links last; or `only` these files.

    Raises: OSError, and the remote's errors.
    """
    names = await off_loop(walk, local) if only is None else Names(list(only), [], [], [])
    source = await off_loop(Directory, local)
    sending = Sending(source, names, progress)
    failures: list[OSError] = []

    async def archive() -> AsyncGenerator[bytes, None]:
        try:
            while piece := await off_loop(sending.next):
                yield piece
        except OSError as error:
            failures.append(error)
            raise

    try:
        written = await remote.unpack(path, archive())
    except PaddockError:
        # The request was broken off, because a local file could not be read.
        if failures:
            raise failures[0] from None
        raise
    finally:
        await finally_off_loop(sending.close)
    return Transfer(
        files=written.files,
        bytes=written.bytes,
        skipped=tuple(sorted([*sending.skipped, *written.skipped_names])),
        links=written.links,
        more_skipped=max(written.skipped - len(written.skipped_names), 0),
    )


async def download(
    remote: Remote, path: str, local: Path, max_bytes: int, progress: Progress | None = None
) -> Transfer:
    """Fetches what is beneath `path`: regular files, links last.

    Raises: LimitError, OSError, and the remote's errors.
    """
    told: Mapping[str, str] = {}

    def heed(headers: Mapping[str, str]) -> None:
        nonlocal told
        told = headers

    async with aclosing(remote.packed(path, heed)) as arriving:
        first = await anext(arriving, b"")  # a refusal creates no directory
        target = await off_loop(Directory, local, make=True)
        receiving = Receiving(target, max_bytes, path, progress)
        try:
            await off_loop(receiving.feed, first)
            async for piece in arriving:
                await off_loop(receiving.feed, piece)
            await off_loop(receiving.finish)
        finally:
            await finally_off_loop(receiving.close)
    skipped, more = _skipped(told)
    return Transfer(
        files=receiving.files,
        bytes=receiving.bytes,
        skipped=tuple(sorted([*skipped, *receiving.skipped])),
        links=receiving.links,
        more_skipped=more + receiving.more_skipped,
    )


def _skipped(headers: Mapping[str, str]) -> tuple[list[str], int]:
    """The first names that the control plane left out, and how many others there are."""
    try:
        names = json.loads(headers.get(_SKIPPED_NAMES, "[]"))
        more = int(headers.get(_SKIPPED, "0")) - len(names)
    except (ValueError, TypeError, RecursionError):
        return [], 0
    found = [str(name) for name in names] if isinstance(names, list) else []
    return found, max(more, 0)
