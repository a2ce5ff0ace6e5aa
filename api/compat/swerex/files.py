"""Files, as SWE-ReX reads, writes and uploads them."""

import codecs
from contextlib import aclosing
from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.long_texts import decoded, json_text
from api.compat.multipart import Multipart, boundary_of
from api.compat.spool import Spool, Spools
from api.compat.swerex.bodies import ReadBody, WriteBody
from api.compat.swerex.failures import builtin
from api.operations.file_archives import write_archive
from api.operations.files import read_file as read
from api.operations.files import write_file as write
from api.shape.byte_answers import Download
from api.shape.objects import validated
from orchestrator.ground.errors import (
    NotFoundError,
    PermissionDeniedError,
    TooLargeError,
    ValidationError,
)
from paddock.contract.files import ArchiveQuery, PathQuery, WriteQuery

# A file is read as one JSON text.
MOST_READ = 16 * 2**20
# Decoders of these take time that is linear in the text.
_FAMILIES = (
    *("utf-", "ascii", "latin-", "iso8859", "cp", "koi8", "mac-"),
    *("gb", "big5", "shift", "euc", "iso2022"),
)
_HANDLERS = ("strict", "ignore", "replace", "backslashreplace", "surrogateescape")
_TRUE = ("true", "1", "yes", "on")


async def read_file(call: Call) -> web.Response:
    """A file as text. Raises: FileNotFoundError, UnicodeError."""
    given = await call.body(ReadBody)
    encoding, errors = _encoding(given.encoding), given.errors or "strict"
    if errors not in _HANDLERS:
        text = f"errors must be one of {', '.join(_HANDLERS)}"
        raise ValidationError(text, field="errors")
    data = await _bytes(call, given.path)

    def reply() -> str:
        try:
            text = decoded(data, encoding, errors)
        except UnicodeError as error:
            raise builtin("UnicodeError", f"{given.path} can't be read as text: {error}") from None
        # As Python reads text.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        return f'{{"content": {json_text(text)}}}'

    body = await call.plane.aside.call(len(data), reply)
    return web.Response(text=body, content_type="application/json")


async def _bytes(call: Call, path: str) -> bytes:
    query = validated(PathQuery, {"path": path})
    try:
        async with call.doing(read, query=query) as answer:
            assert isinstance(answer, Download)  # noqa: S101 - no header asks for less
            with answer.held:
                if answer.size > MOST_READ:
                    text = f"the file has more than {MOST_READ} bytes: read it in parts"
                    raise TooLargeError(text)
                data = bytearray()
                async for chunk in answer.chunks:
                    data += chunk
                return bytes(data[: answer.size])
    except NotFoundError as error:
        raise builtin("FileNotFoundError", error.detail) from None


def _encoding(name: str | None) -> str:
    """The codec's own name. Raises: ValidationError for one that is not of a text's bytes."""
    try:
        found = codecs.lookup(name or "utf-8").name
    except (LookupError, ValueError):
        found = ""
    if not found.startswith(_FAMILIES):
        raise ValidationError("encoding must be that of a text, such as utf-8", field="encoding")
    return found


async def write_file(call: Call) -> dict[str, Any]:
    """Writes a text, and makes the directories above it."""
    given = await call.body(WriteBody)
    query = validated(WriteQuery, {"path": given.path, "parents": "true"})
    with _Placed():
        await call.done(write, query=query, upload=_whole(given.content.encode()))
    return {}


async def upload(call: Call) -> dict[str, Any]:
    """Writes a file, or unpacks a zip archive of a directory."""
    boundary = boundary_of(call.request.headers.get("Content-Type", ""))
    spools, settings = call.context.kept.of(Spools), call.plane.settings
    account, reserve = call.context.principal.account, settings.min_free_disk_bytes
    spool = Spool(spools, account, settings.state_dir, reserve)
    try:
        with call.context.streaming("uploads", call.context.session()):
            values = await _received(call, spool, boundary)
        with _Placed():
            await _place(call, spool, values["target_path"], values.get("unzip", "false"))
    finally:
        call.context.work.detach(spool.close())
    return {}


async def _received(call: Call, spool: Spool, boundary: bytes) -> dict[str, str]:
    """The fields of an upload, whose file is in the spool. Raises: ValidationError."""
    values: dict[str, str] = {}
    async with aclosing(Multipart(call.upload(), boundary).parts()) as parts:
        async for part in parts:
            if part.name in values:
                raise ValidationError(f"{part.name} is there twice", field=part.name)
            if part.name == "file":
                await spool.fill(part.data)
            values[part.name] = await part.text()  # of a file, nothing is left
    for name in ("file", "target_path"):
        if name not in values:
            raise ValidationError(f"{name} is missing", field=name)
    return values


async def _place(call: Call, spool: Spool, path: str, unzip: str) -> None:
    if unzip.strip().lower() in _TRUE:
        archive = validated(ArchiveQuery, {"path": path, "format": "zip"})
        await call.done(write_archive, query=archive, upload=spool.chunks())
    else:
        query = validated(WriteQuery, {"path": path, "parents": "true"})
        await call.done(write, query=query, upload=spool.chunks())


class _Placed:
    """Says where files may be written, if one may not."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if isinstance(error, PermissionDeniedError) and error.fields.get("field") == "path":
            raise PermissionDeniedError(
                error.detail, **error.fields | {"remedy": _REMEDY}
            ) from error


_REMEDY = (
    "Write below the session's workspace_path, or at a level that allows any command in /tmp. "
    "SWE-agent keeps its tools in /root: create the session with workspace_path /root."
)


async def _whole(data: bytes) -> Any:
    yield data
