"""`/files`: the bytes of files, down and up."""

import posixpath
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.e2b.failure import failure as e2b_failure
from api.compat.e2b.failure import message
from api.compat.e2b.inside.access import (
    Inside,
    enter,
    inside_credential,
    signed_credential,
    signer_credential,
)
from api.compat.e2b.inside.entries import ATTRIBUTES
from api.compat.e2b.inside.inflate import deflated, inflated
from api.compat.e2b.inside.paths import absolute
from api.compat.e2b.inside.uploads import Uploads
from api.compat.multipart import Multipart, boundary_of
from api.compat.protocol import Route
from api.http.answer import respond
from api.http.body import UPLOAD_PACE, arriving, check_encoding
from api.operations.files import read_file, write_file
from api.shape.access import Access
from api.shape.byte_answers import Download
from api.shape.context import Kept
from api.shape.objects import validated
from api.shape.preconditions import HEADERS
from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import PaddockError, ValidationError
from orchestrator.ground.serving import stream
from paddock.contract.files import PathQuery, WriteQuery

_METADATA = "x-metadata-"
_BYTES, _PARTS = "application/octet-stream", "multipart/form-data"
_STATUSES = {"too_large": 507, "conflict": 400}
_FILE = "file"
_MOST_FILES = 1000


async def _read(call: Call) -> web.StreamResponse:
    inside, request = enter(call), call.request
    query = validated(PathQuery, {"path": _path(inside)})
    asked = {name: request.headers[name] for name in HEADERS if name in request.headers}
    context = replace(inside.context, preconditions=asked)
    async with call.doing(read_file, context=context, query=query) as answer:
        # Clients that only can read it say more than this.
        if type(answer) is Download and request.headers.get("Accept-Encoding") == "gzip":
            return await _compressed(request, answer)
        return await respond(request, answer)


def _path(inside: Inside) -> str:
    path = inside.call.request.query.get("path", "")
    if not path:
        raise ValidationError("path must not be empty", field="path")
    return inside.path(path)


async def _compressed(request: web.Request, answer: Download) -> web.StreamResponse:
    headers = {"Content-Type": answer.MEDIA, "Content-Encoding": "gzip"}
    response = web.StreamResponse(headers=headers)
    with answer.held:
        await stream.begin(request, response)
        async for piece in deflated(answer.chunks):
            await stream.write(request, response, piece)
        await response.write_eof()
    return response


async def _write(call: Call) -> web.StreamResponse:
    inside, request = enter(call), call.request
    attributes = _attributes(request)
    if request.content_type == _PARTS:
        check_encoding(request)
        written = await _written_parts(inside, attributes)
    elif request.content_type == _BYTES:
        body = arriving(request, UPLOAD_PACE)
        if request.headers.get("Content-Encoding", "").lower() == "gzip":
            body = inflated(body)
        else:
            check_encoding(request)
        written = [await _put(inside, _path(inside), body, attributes)]
    else:
        raise ValidationError(f"Content-Type must be {_PARTS} or {_BYTES}", field="Content-Type")
    return web.json_response(written)


async def _written_parts(inside: Inside, attributes: Mapping[str, str]) -> list[dict[str, Any]]:
    """Writes the parts one after the other; those before one that fails stay."""
    request = inside.call.request
    given = request.query.get("path", "")
    boundary = boundary_of(request.headers.get("Content-Type", ""))
    body = Multipart(arriving(request, UPLOAD_PACE), boundary, _MOST_FILES)
    written: list[dict[str, Any]] = []
    async with aclosing(body.parts()) as parts:
        async for part in parts:
            if part.name != _FILE:
                async for _ in part.data:
                    continue
                continue
            if given and written:
                raise ValidationError("with path, a request writes one file", field="path")
            path = given or part.file_name
            if not path:
                raise ValidationError("each part must have a file name", field=_FILE)
            written.append(await _put(inside, inside.path(path), part.data, attributes))
    if not written:
        raise ValidationError(f"there is no part with the name {_FILE}", field=_FILE)
    return written


async def _put(
    inside: Inside, path: str, body: AsyncIterator[bytes], attributes: Mapping[str, str]
) -> dict[str, Any]:
    shown = absolute(path, inside.workspace)
    inside.context.kept.of(Uploads).begin(inside.session, shown)
    if attributes:
        await _put_with(inside, path, body, attributes)
    else:
        query = validated(WriteQuery, {"path": path, "parents": "true"})
        await inside.done(write_file, query=query, upload=body)
    info: dict[str, Any] = {"path": shown, "name": posixpath.basename(shown), "type": "file"}
    return {**info, "metadata": dict(attributes)} if attributes else info


async def _put_with(
    inside: Inside, path: str, body: AsyncIterator[bytes], attributes: Mapping[str, str]
) -> None:
    """Writes a file that has attributes, which no operation of this API gives."""
    context, session = inside.context, inside.session
    named = {ATTRIBUTES + name: value for name, value in attributes.items()}
    async with inside.kept():
        with context.streaming("uploads", session):
            await inside.plane.files.put(
                *(context.principal, session, path, "overwrite", body),
                parents=True,
                attributes=named,
            )


def _attributes(request: web.Request) -> dict[str, str]:
    """The attributes that a file gets, by their names. Raises: ValidationError."""
    found: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        if not key.startswith(_METADATA):
            continue
        if key == _METADATA or not (value.isascii() and value.isprintable()):
            raise ValidationError("an attribute has a name and printable ASCII", field=name)
        found[key.removeprefix(_METADATA)] = value
    return found


def _failure(error: PaddockError, request_id: str) -> web.Response:
    status = _STATUSES.get(error.code)
    if status is None:
        return e2b_failure(error, request_id)
    return web.json_response({"code": status, "message": message(error)}, status=status)


def _routes(credential: Callable[[web.Request, ControlPlane, Kept], str]) -> tuple[Route, ...]:
    return tuple(
        Route(
            *(method, "/files", Access.WORK, handler),
            credential=credential,
            failure=_failure,
        )
        for method, handler in (("GET", _read), ("POST", _write))
    )


async def _is_signer(_: Call) -> web.StreamResponse:
    """For gateways: whether a sandbox of this instance has signed an address."""
    return web.json_response({})


SIGNER_ROUTE = Route(
    *("GET", "/files/signer", Access.READ, _is_signer), credential=signer_credential
)
FILE_ROUTES = _routes(inside_credential)
# The SDKs sign addresses at the root of the server that they are given.
SIGNED_ROUTES = _routes(signed_credential)
