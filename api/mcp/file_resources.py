"""Files of the workspace as resources: their URIs, their content, and their changes."""

import asyncio
import base64
import mimetypes
import posixpath
from contextlib import aclosing
from typing import Any
from urllib.parse import unquote

from api.mcp.messages import INVALID_PARAMS, McpError
from api.mcp.subscriptions import updated
from api.mcp.tool import Caller
from api.operations.file_trees import watch_files
from api.operations.files import read_file
from api.shape.objects import validated
from orchestrator.ground.errors import PaddockError, TooLargeError
from orchestrator.ground.serving.failures import failed
from paddock.contract.file_trees import FileChange, WatchQuery, WatchStarted
from paddock.contract.files import PathQuery

_PREFIX = "paddock://files/"
TEMPLATE_URI = _PREFIX + "{+path}"
TEMPLATE = {
    "uriTemplate": TEMPLATE_URI,
    "name": "file",
    "title": "A file of the workspace",
    "description": "`path` is relative to the workspace. Text, or bytes in Base64.",
}
# JSON may need six times as many, and making it holds up everybody else.
MOST_BYTES = 256 * 1024
# A path has at most 4096 bytes, of which each may take three characters.
_MOST_URI = 4 * 4096


def path_of(uri: str) -> str | None:
    """The path of a file's URI; None if it is none. Raises: McpError if it has no path."""
    if not uri.startswith(_PREFIX):
        return None
    if len(uri) > _MOST_URI:
        raise McpError(INVALID_PARAMS, f"a URI has at most {_MOST_URI} characters")
    try:
        path = unquote(uri.removeprefix(_PREFIX), errors="strict")
    except UnicodeDecodeError:
        path = ""
    if not path or "\0" in path:
        raise McpError(INVALID_PARAMS, f"the path of {uri[:128]} must be UTF-8, and not empty")
    return path


async def read_file_resource(caller: Caller, uri: str, path: str) -> dict[str, Any]:
    """The content of a file, as the protocol's `ResourceContents`. Raises: TooLargeError."""
    query = validated(PathQuery, {"path": path})
    async with caller.doing(read_file, query=query) as answer:
        with answer.held:
            if answer.size > MOST_BYTES:
                text = f"a resource has at most {MOST_BYTES} bytes, and this file {answer.size}"
                raise TooLargeError(f"{text}: read_file reads parts of it")
            data = await _content(answer.chunks)
    kind = mimetypes.guess_type(path)[0]
    try:
        return {"uri": uri, "mimeType": kind or "text/plain", "text": data.decode()}
    except UnicodeDecodeError:
        blob = base64.b64encode(data).decode()
        return {"uri": uri, "mimeType": kind or "application/octet-stream", "blob": blob}


async def _content(chunks: Any) -> bytes:
    content = bytearray()
    async with aclosing(chunks) as found:
        async for chunk in found:
            content += chunk
    return bytes(content)


async def watch_file(caller: Caller, uri: str, path: str) -> asyncio.Task[None]:
    """Begins to tell the client of the file's changes; the caller ends the task.

    The directory of the file is watched. Raises: what a watch does.
    """
    begun: asyncio.Future[PaddockError | None] = asyncio.get_running_loop().create_future()
    task = caller.context.work.spawn(_watch(caller, uri, path, begun))
    task.add_done_callback(lambda _task: begun.cancel())
    try:
        error = await begun
    except asyncio.CancelledError:
        task.cancel()
        raise
    if error is not None:
        raise error
    return task


async def _watch(
    caller: Caller, uri: str, path: str, begun: "asyncio.Future[PaddockError | None]"
) -> None:
    context, name = caller.context, posixpath.basename(path)
    tell = caller.conversation.streams.listening.add
    try:
        directory = {"path": posixpath.dirname(path) or ".", "recursive": "false"}
        query = validated(WatchQuery, directory)
        with context.work.while_allowed(context.allowed):
            async with caller.doing(watch_files, query=query) as answer:
                with answer.held:
                    async with aclosing(answer.events) as events:
                        async for event in events:
                            if event is None:
                                continue
                            if isinstance(event.data, WatchStarted):
                                begun.set_result(None)
                            elif not isinstance(event.data, FileChange) or _about(event.data, name):
                                tell(updated(uri), once=True)
    except Exception as error:  # noqa: BLE001 - the client learns of it, and the log has the rest
        problem = failed(error)
        if begun.done():
            # The client looks, and finds what is wrong.
            tell(updated(uri), once=True)
        else:
            begun.set_result(problem)


def _about(change: FileChange, name: str) -> bool:
    """Whether a change in the file's directory may concern it."""
    paths = (change.path, change.source or "")
    return change.kind == "overflow" or any(posixpath.basename(each) == name for each in paths)
