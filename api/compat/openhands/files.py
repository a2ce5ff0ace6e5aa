"""Files of OpenHands: uploaded and downloaded as bytes."""

from contextlib import aclosing

from aiohttp import web

from api.compat.call import Call
from api.compat.multipart import Multipart, boundary_of
from api.compat.openhands.bodies import PlaceQuery
from api.compat.replies import explained, json_reply, sentence
from api.http.answer import respond
from api.http.endpoint import read_query
from api.operations.files import read_file, write_file
from api.shape.byte_answers import Download
from api.shape.objects import validated
from orchestrator.ground.errors import NotFoundError, PaddockError, TooLargeError, ValidationError
from paddock.contract.files import PathQuery, WriteQuery

# Of a file that is compared.
MOST_SHOWN = 2**20


async def upload(call: Call) -> web.StreamResponse:
    """Writes a file, and makes the directories above it. A refusal is an answer with its text."""
    query = read_query(call.request, PlaceQuery)
    try:
        size = await _written(call, query.path)
    except PaddockError as error:
        if "retry_after" in error.fields:
            raise
        text = sentence(explained(error, call.context.request_id))
        return json_reply({"success": False, "file_size": None, "error": text})
    return json_reply({"success": True, "file_size": size, "error": None})


async def _written(call: Call, path: str) -> int:
    boundary = boundary_of(call.request.headers.get("Content-Type", ""))
    place = validated(WriteQuery, {"path": path, "parents": "true"})
    size = None
    async with aclosing(Multipart(call.upload(), boundary).parts()) as parts:
        async for part in parts:
            if part.name != "file":
                await part.text()
            elif size is not None:
                raise ValidationError("file is there twice", field="file")
            else:
                written = await call.done(write_file, query=place, upload=part.data)
                size = int(written.bytes)
    if size is None:
        raise ValidationError("file is missing", field="file")
    return size


async def download(call: Call) -> web.StreamResponse:
    """A file's bytes, as they are read."""
    query = read_query(call.request, PlaceQuery)
    asked = validated(PathQuery, {"path": query.path})
    async with call.doing(read_file, query=asked) as answer:
        return await respond(call.request, answer)


async def read_text(call: Call, path: str) -> str | None:
    """A short file as text; None if there is none. Raises: TooLargeError."""
    try:
        async with call.doing(read_file, query=validated(PathQuery, {"path": path})) as answer:
            assert isinstance(answer, Download)  # noqa: S101 - no header asks for less
            with answer.held:
                if answer.size > MOST_SHOWN:
                    raise TooLargeError(f"the file has more than {MOST_SHOWN} bytes")
                data = b"".join([chunk async for chunk in answer.chunks])
    except NotFoundError:
        return None
    return data[: answer.size].decode(errors="replace")
