"""Answers of operations that are bytes: files, archives, recordings and what commands print."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar

from api.shape.answers import BYTES, RECORDING


@dataclass(frozen=True, slots=True)
class Download:
    """A file's bytes: exactly `size`, or the connection is cut. `held` is closed at the end.

    `version` is the file's entity tag, if its sandbox reports it.
    """

    STATUS: ClassVar[HTTPStatus] = HTTPStatus.OK
    MEDIA: ClassVar[str] = BYTES
    HEADERS: ClassVar[tuple[str, ...]] = (
        *("X-Paddock-Permissions", "X-Paddock-Modified"),
        *("Accept-Ranges", "ETag"),
    )

    size: int
    permissions: int
    modified: int | None
    chunks: AsyncIterator[bytes]
    held: ExitStack
    version: str | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that `HEADERS` names."""
        return _facts(self)


@dataclass(frozen=True, slots=True)
class PartialDownload(Download):
    """A part of a file: `size` bytes from `start` on, of `total`."""

    STATUS: ClassVar[HTTPStatus] = HTTPStatus.PARTIAL_CONTENT
    HEADERS: ClassVar[tuple[str, ...]] = (*Download.HEADERS, "Content-Range")

    start: int = 0
    total: int = 0

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the whole file, and which part it is."""
        last = self.start + self.size - 1
        return {**_facts(self), "Content-Range": f"bytes {self.start}-{last}/{self.total}"}


def _facts(answer: Download) -> dict[str, str]:
    """What the headers of a download say of its file."""
    permissions, modified, ranges, etag = Download.HEADERS
    known = {permissions: f"{answer.permissions:04o}", ranges: "bytes"}
    if answer.modified is not None:
        known[modified] = str(answer.modified)
    if answer.version is not None:
        known[etag] = f'"{answer.version}"'
    return known


@dataclass(frozen=True, slots=True)
class Printed:
    """What a command prints; the connection is cut where bytes are missing.

    `held` is closed at the end. `version` is the output's entity tag if it can't change any more:
    then ranges of it can be requested.
    """

    STATUS: ClassVar[HTTPStatus] = HTTPStatus.OK
    MEDIA: ClassVar[str] = BYTES
    HEADERS: ClassVar[tuple[str, ...]] = ("Accept-Ranges", "ETag")

    chunks: AsyncIterator[bytes]
    held: ExitStack
    version: str | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that `HEADERS` names; without a version, there is no `ETag`."""
        if self.version is None:
            return {"Accept-Ranges": "none"}
        return {"Accept-Ranges": "bytes", "ETag": f'"{self.version}"'}


@dataclass(frozen=True, slots=True)
class PrintedPart(Printed):
    """A part of a command's output: `size` bytes from `start` on, of `total`."""

    STATUS: ClassVar[HTTPStatus] = HTTPStatus.PARTIAL_CONTENT
    HEADERS: ClassVar[tuple[str, ...]] = ("Accept-Ranges", "ETag", "Content-Range")

    size: int = 0
    start: int = 0
    total: int = 0

    @property
    def headers(self) -> Mapping[str, str]:
        """Those of the whole output, and which part it is."""
        last = self.start + self.size - 1
        whole = {"Accept-Ranges": "bytes", "ETag": f'"{self.version}"'}
        return {**whole, "Content-Range": f"bytes {self.start}-{last}/{self.total}"}


@dataclass(frozen=True, slots=True)
class Packed:
    """An archive's bytes, of unknown number. `held` is closed at the end.

    `skipped` entries are left out; `skipped_names` are the first of them.
    """

    MEDIA: ClassVar[str] = BYTES
    HEADERS: ClassVar[tuple[str, ...]] = ("X-Paddock-Skipped", "X-Paddock-Skipped-Names")

    chunks: AsyncIterator[bytes]
    skipped: int
    skipped_names: Sequence[str]
    held: ExitStack


@dataclass(frozen=True, slots=True)
class Recording:
    """A terminal's recording: asciicast v2. `held` is closed at the end."""

    MEDIA: ClassVar[str] = RECORDING

    chunks: AsyncIterator[bytes]
    held: ExitStack
