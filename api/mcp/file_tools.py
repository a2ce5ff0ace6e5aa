"""Files of the workspace as tools."""

import base64
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from api.mcp.inputs import Inputs, part
from api.mcp.plain_tools import of_body, of_query
from api.mcp.results import MOST_TEXT, ToolResult, of_model
from api.mcp.tool import Caller, McpTool, described
from api.operations.file_trees import change_mode, copy_file, patch_files, search_files
from api.operations.files import (
    delete_file,
    list_files,
    make_directory,
    move_file,
    read_file,
    stat_file,
    write_file,
)
from api.shape.byte_answers import Download
from orchestrator.ground.errors import ValidationError
from paddock.contract.file_trees import CopyBody, FileMatches, ModeBody, PatchBody, SearchQuery
from paddock.contract.files import (
    DeleteQuery,
    FileList,
    ListQuery,
    MoveBody,
    PathBody,
    PathQuery,
    WriteQuery,
)
from paddock.contract.mcp import McpContent, McpRange

_MOST_ENTRIES = 500

_READ = Inputs((part(PathQuery), part(McpRange)))
_WRITE = Inputs((part(WriteQuery), part(McpContent)))
_LIST = Inputs((part(ListQuery),))
_SEARCH = Inputs((part(SearchQuery),))


async def _read(caller: Caller, given: dict[str, Any]) -> ToolResult:
    query, wanted = _READ.read(given)
    async with caller.doing(read_file, query=query) as answer:
        with answer.held:
            data = await _piece(answer, wanted.offset)
    end = wanted.offset + len(data)
    members = {"path": query.path, "size": answer.size, "offset": wanted.offset, "next": end}
    more = f"\n[{answer.size - end} more bytes; continue with offset={end}]"
    rest = more if end < answer.size else ""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        encoded = base64.b64encode(data).decode()
        text = f"[not UTF-8; in Base64:]\n{encoded}{rest}"
        return ToolResult(text, members | {"base64": encoded})
    return ToolResult(text + rest, members | {"text": text})


async def _piece(answer: Download, offset: int) -> bytes:
    """The bytes from the offset on, at most `MOST_TEXT`, without a split character at the end."""
    kept, position = bytearray(), 0
    async with aclosing(answer.chunks) as chunks:  # type: ignore[type-var]
        async for chunk in chunks:
            kept += chunk[max(0, offset - position) :]
            position += len(chunk)
            if len(kept) > MOST_TEXT:
                break
    return bytes(kept) if len(kept) <= MOST_TEXT else _whole_characters(bytes(kept[:MOST_TEXT]))


def _whole_characters(data: bytes) -> bytes:
    """The data without an incomplete character at its end."""
    for count in range(1, 4):
        if data[-count] >= 0xC0:
            return data[:-count]
        if data[-count] < 0x80:
            break
    return data


async def _write(caller: Caller, given: dict[str, Any]) -> ToolResult:
    query, content = _WRITE.read(given)
    data = _bytes_of(content)

    async def upload() -> AsyncIterator[bytes]:
        yield data

    async with caller.doing(write_file, query=query, upload=upload()) as answer:
        return of_model(answer)


def _bytes_of(content: McpContent) -> bytes:
    if (content.text is None) == (content.base64 is None):
        raise ValidationError("exactly one of text and base64 must be given", field="text")
    if content.base64 is None:
        return (content.text or "").encode()
    try:
        return base64.b64decode(content.base64, validate=True)
    except ValueError:
        raise ValidationError("base64 must be Base64", field="base64") from None


async def _list(caller: Caller, given: dict[str, Any]) -> ToolResult:
    (query,) = _LIST.read(given)
    async with caller.doing(list_files, query=query) as answer:
        listed: FileList = answer
    if len(listed.items) > _MOST_ENTRIES:
        kept = {"items": listed.items[:_MOST_ENTRIES], "truncated": True}
        listed = listed.model_copy(update=kept)
    return of_model(listed)


async def _search(caller: Caller, given: dict[str, Any]) -> ToolResult:
    (query,) = _SEARCH.read(given)
    async with caller.doing(search_files, query=query) as answer:
        found: FileMatches = answer
    lines = [f"{each.path}:{each.line}: {each.text}" for each in found.items]
    end = ["[there may be more]"] if found.truncated else []
    return ToolResult("\n".join(lines + end) or "[nothing]", found.raw)


FILE_TOOLS = (
    McpTool(
        "read_file",
        f"Reads a file of the workspace, at most {MOST_TEXT} bytes from `offset` on.",
        _READ.schema,
        _read,
        reads=True,
    ),
    McpTool(
        "write_file",
        "Writes `text`, or bytes in `base64`, to a file, completely or not at all.",
        _WRITE.schema,
        _write,
    ),
    McpTool("list_files", described(list_files), _LIST.schema, _list, reads=True),
    of_query("stat_file", stat_file, PathQuery, reads=True),
    McpTool("search_files", described(search_files), _SEARCH.schema, _search, reads=True),
    of_body("patch_files", patch_files, PatchBody),
    of_body("copy_file", copy_file, CopyBody),
    of_body("change_mode", change_mode, ModeBody),
    of_query("delete_file", delete_file, DeleteQuery),
    of_body("make_directory", make_directory, PathBody),
    of_body("move_file", move_file, MoveBody),
)
