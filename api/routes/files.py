"""Files of a session's workspace; their bytes are streamed both ways."""

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

from aiohttp import web

from api import stream
from api.body import IDLE_SECONDS, check_encoding
from api.call import Call, reply
from api.queries import ListQuery, PathQuery, WriteQuery
from api.schemas import LinkBody, MoveBody, PathBody
from orchestrator.errors import ValidationError
from orchestrator.sessions.files import FileDownload
from orchestrator.sessions.session import Session

# The nine bits of a file that is read, octal as they are sent with one that is written.
PERMISSIONS_HEADER = "X-Paddock-Permissions"
_CHUNK_BYTES = 256 * 1024


async def read(call: Call, query: PathQuery) -> web.StreamResponse:
    """The file's bytes: as many as it had when it was opened."""
    session = call.session()
    with call.streaming("downloads", session):
        return await _read(call, session, query.path)


async def _read(call: Call, session: Session, path: str) -> web.StreamResponse:
    download = await _open(call, session, path)
    try:
        response = web.StreamResponse(headers={"Content-Type": "application/octet-stream"})
        response.headers[PERMISSIONS_HEADER] = f"{download.permissions:04o}"
        response.content_length = download.size
        await stream.begin(call.request, response)
        if not await _send(call.request, response, download):
            # Fewer bytes than announced: the client must not take them for the file.
            stream.abort(call.request)
    finally:
        call.work.detach(download.close())
    return response


async def _open(call: Call, session: Session, path: str) -> FileDownload:
    """Opens the file; for a client that goes away meanwhile it is closed again."""
    return await call.work.complete(
        call.plane.files.read(call.principal, session, path),
        lambda download: call.work.detach(download.close()),
    )


async def _send(request: web.Request, response: web.StreamResponse, download: FileDownload) -> bool:
    """Sends what was announced; False when the file has become shorter."""
    left = download.size
    if left:
        async for chunk in download.chunks():
            await stream.write(request, response, chunk[:left])
            left -= min(left, len(chunk))
            if not left:
                break
    return not left


async def write(call: Call, query: WriteQuery) -> web.Response:
    """Writes the body to the file, whole or not at all."""
    check_encoding(call.request)
    if query.mode == "append" and query.permissions is not None:
        raise ValidationError("what is appended changes no permissions", field="permissions")
    session = call.session()
    permissions = None if query.permissions is None else int(query.permissions, 8)
    with call.streaming("uploads", session):
        written = await call.plane.files.write(
            call.principal,
            session,
            query.path,
            query.mode,
            _chunks(call.request),
            permissions,
            parents=query.parents,
        )
    return reply({"path": query.path, "mode": query.mode, "bytes": written})


async def _chunks(request: web.Request) -> AsyncIterator[bytes]:
    """The request's body as it arrives. Raises: ValidationError when it stops arriving."""
    while True:
        try:
            async with asyncio.timeout(IDLE_SECONDS):
                chunk = await request.content.read(_CHUNK_BYTES)
        except TimeoutError:
            raise ValidationError(f"the body stopped for {IDLE_SECONDS:g} s") from None
        if not chunk:
            return
        yield chunk


async def list_directory(call: Call, query: ListQuery) -> web.Response:
    """What a directory holds, some levels deep."""
    return reply(
        await call.plane.files.list(call.principal, call.session(), query.path, query.depth)
    )


async def make_directory(call: Call, body: PathBody) -> web.Response:
    """Makes a directory and those above it."""
    work = call.plane.files.mkdir(call.principal, call.session(), body.path)
    await call.work.complete(work)
    return reply({"path": body.path}, HTTPStatus.CREATED)


async def move(call: Call, body: MoveBody) -> web.Response:
    """Renames a file or directory; a file at the destination is replaced."""
    await call.work.complete(
        call.plane.files.move(call.principal, call.session(), body.source, body.destination)
    )
    return reply({"source": body.source, "destination": body.destination})


async def make_link(call: Call, body: LinkBody) -> web.Response:
    """Makes a symbolic link that stays in the workspace; a file or link there is replaced."""
    await call.work.complete(
        call.plane.files.symlink(call.principal, call.session(), body.path, body.target)
    )
    return reply({"path": body.path, "target": body.target}, HTTPStatus.CREATED)


async def delete(call: Call, query: PathQuery) -> web.Response:
    """Removes a file, a link, or an empty directory."""
    await call.work.complete(call.plane.files.delete(call.principal, call.session(), query.path))
    return reply({"path": query.path})
