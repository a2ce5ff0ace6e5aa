"""Reads `multipart/form-data` as it arrives: in one pass, with bounds, and without a copy of it."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from orchestrator.ground.errors import TooLargeError, ValidationError

_BOUNDARY = re.compile(
    r'multipart/form-data\s*;\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s;,"]{1,70}))\s*', re.IGNORECASE
)
_NAME = re.compile(rb';\s*name=(?:"([^"\r\n]{1,64})"|([^\s;"]{1,64}))', re.IGNORECASE)
_FILE_NAME = re.compile(rb';\s*filename="((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_ESCAPED = re.compile(r'\\(["\\])')
_END = b"\r\n\r\n"
_MOST_HEADERS = 8 * 1024
_MOST_PARTS = 16
_MOST_VALUE = 16 * 1024


def boundary_of(content_type: str) -> bytes:
    """The boundary that a `Content-Type` names. Raises: ValidationError."""
    found = _BOUNDARY.fullmatch(content_type)
    if found is None:
        raise ValidationError("the body must be multipart/form-data", field="Content-Type")
    return (found[1] or found[2]).encode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Part:
    """One field; its data must be read before the next part is asked for.

    `file_name` may be a path; it is empty for a field that has none.
    """

    name: str
    data: AsyncIterator[bytes]
    file_name: str = ""

    async def text(self) -> str:
        """A short value. Raises: ValidationError, TooLargeError."""
        value = bytearray()
        async for piece in self.data:
            value += piece
            if len(value) > _MOST_VALUE:
                raise TooLargeError(f"{self.name} is longer than {_MOST_VALUE} bytes")
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise ValidationError(f"{self.name} is not UTF-8", field=self.name) from None


class Multipart:
    """A body. Raises: ValidationError where it is malformed, and what `chunks` raises."""

    def __init__(
        self, chunks: AsyncIterator[bytes], boundary: bytes, most_parts: int = _MOST_PARTS
    ) -> None:
        self._chunks = chunks
        self._most_parts = most_parts
        self._delimiter = b"\r\n--" + boundary
        # The first delimiter may be the first line.
        self._buffer = bytearray(b"\r\n")

    async def parts(self) -> AsyncGenerator[Part]:
        """The parts in their order."""
        async for _ in self._data():
            pass  # a preamble
        for _ in range(self._most_parts):
            if await self._is_last():
                return
            name, file_name = await self._names()
            yield Part(name, self._data(), file_name)
            await asyncio.sleep(0)  # many short ones may have arrived at once
        if not await self._is_last():
            raise ValidationError(f"the body has more than {self._most_parts} parts")

    async def _more(self) -> None:
        chunk = await anext(self._chunks, None)
        if chunk is None:
            raise ValidationError("the body ends within a part")
        self._buffer += chunk

    async def _data(self) -> AsyncGenerator[bytes]:
        """What comes before the next delimiter."""
        rest = len(self._delimiter) - 1
        while (at := self._buffer.find(self._delimiter)) < 0:
            if len(self._buffer) > rest:
                yield bytes(self._buffer[:-rest])
                del self._buffer[:-rest]
            await self._more()
        if at:
            yield bytes(self._buffer[:at])
        del self._buffer[: at + len(self._delimiter)]

    async def _is_last(self) -> bool:
        while len(self._buffer) < 2:
            await self._more()
        if self._buffer.startswith(b"--"):
            return True
        if not self._buffer.startswith(b"\r\n"):
            raise ValidationError("a boundary is not followed by a line end")
        return False

    async def _names(self) -> tuple[str, str]:
        """The name of a field and that of its file."""
        while (at := self._buffer.find(_END)) < 0:
            if len(self._buffer) > _MOST_HEADERS:
                raise _too_many_headers()
            await self._more()
        if at > _MOST_HEADERS:
            raise _too_many_headers()
        headers = bytes(self._buffer[:at])
        del self._buffer[: at + len(_END)]
        for line in headers.split(b"\r\n"):
            if line.lower().startswith(b"content-disposition:"):
                found = _NAME.search(line)
                if found is not None:
                    return (found[1] or found[2]).decode("utf-8", "replace"), _file_name(line)
        raise ValidationError("a part has no name")


def _too_many_headers() -> ValidationError:
    return ValidationError(f"the headers of a part exceed {_MOST_HEADERS} bytes")


def _file_name(disposition: bytes) -> str:
    """Clients write a quotation mark as `%22` or after a backslash."""
    found = _FILE_NAME.search(disposition)
    if found is None:
        return ""
    text = found[1].decode("utf-8", "replace")
    return _ESCAPED.sub(r"\1", text).replace("%22", '"')
