"""The tools of every sandbox: commands and files, as typed functions."""

from typing import Annotated

from pydantic import Field

from paddock.app.agent import AppTool, ToolContext
from paddock.app.messages import clipped
from paddock.app.tools import ToolInputError, tool
from paddock.client.session import Session

_MOST_STREAM = 16 * 1024
_MOST_PAGE = 32 * 1024
_MOST_FILE = 8 * 2**20
_MOST_ENTRIES = 1000

Path = Annotated[str, Field(min_length=1, max_length=4096, description="Below the workspace.")]
Argv = Annotated[list[str], Field(min_length=1, max_length=1000)]


def _hand(context: ToolContext) -> Session:
    if context.sandbox is None:
        raise ToolInputError("this session has no sandbox")
    return context.sandbox


async def exec_program(
    context: ToolContext, argv: Argv | None = None, command: str | None = None
) -> dict[str, int | str | None]:
    """Runs a program, without a shell: `argv`, or `command` as a line; exactly one of them."""
    if (argv is None) == (command is None):
        raise ToolInputError("exactly one of argv and command must be given")
    result = await _hand(context).exec(command, argv=argv)
    out, err = clipped(result.stdout, _MOST_STREAM), clipped(result.stderr, _MOST_STREAM)
    told = {"exit_code": result.exit_code, "stdout": out, "stderr": err}
    if result.truncated or (out, err) != (result.stdout, result.stderr):
        told |= {"command_id": result.command_id, "output_bytes": result.output_bytes}
    return told


async def read_output(
    context: ToolContext, command_id: str, offset: Annotated[int, Field(ge=0)] = 0
) -> str:
    """What a command printed, from a byte on: for output of which exec has left out some."""
    shown = await _hand(context).processes.get(command_id, after=offset)
    data = "".join(part.text for part in shown.output).encode(errors="replace")
    page = data[:_MOST_PAGE]
    text = page.decode(errors="ignore") if len(data) > len(page) else data.decode()
    end = offset + len(text.encode()) if len(data) > len(page) else shown.next
    total = shown.exit.output_bytes if shown.exit is not None else None
    if shown.lost:
        raise ToolInputError("what this command printed is not kept any more")
    more = f"continue with offset {end}" if total is None or end < total else "the end"
    return f"{text}\n[{more}]"


async def read_file(
    context: ToolContext,
    path: Path,
    first_line: Annotated[int, Field(ge=1)] = 1,
    lines: Annotated[int, Field(ge=1, le=100_000)] = 2000,
) -> str:
    """The text of a file, or some of its lines."""
    content = await _hand(context).files.read(path, max_bytes=_MOST_FILE)
    every = content.decode(errors="replace").splitlines(keepends=True)
    end = first_line - 1 + lines
    text = "".join(every[first_line - 1 : end])
    return text if end >= len(every) else f"{text}[{len(every)} lines in all]"


async def write_file(context: ToolContext, path: Path, text: str) -> str:
    """Writes a whole file, and makes the directories above it."""
    return f"{await _hand(context).files.write(path, text, parents=True)} bytes are written"


async def list_files(
    context: ToolContext, path: Path = ".", depth: Annotated[int, Field(ge=1, le=64)] = 1
) -> str:
    """The paths below a directory; directories end in /."""
    found = (await _hand(context).files.list(path, depth=depth)).items
    shown = [each.path + "/" * (each.type == "directory") for each in found[:_MOST_ENTRIES]]
    more = [f"[{len(found) - _MOST_ENTRIES} more]"] if len(found) > _MOST_ENTRIES else []
    return "\n".join(shown + more) or "[nothing]"


async def search_files(
    context: ToolContext,
    text: Annotated[str, Field(min_length=1, max_length=4096)],
    path: Path = ".",
) -> str:
    """The lines of all files below a directory that contain a literal text."""
    result = await _hand(context).exec(argv=["grep", "-rnIF", "--", text, path])
    if result.exit_code not in (0, 1):
        raise ToolInputError(clipped(result.stderr or "the search failed", 1000))
    return clipped(result.stdout, 2 * _MOST_STREAM) or "[nothing]"


def hands() -> tuple[AppTool, ...]:
    """The tools of a sandbox."""
    others = (read_output, read_file, write_file, list_files, search_files)
    return (tool(exec_program, name="exec"), *(tool(each) for each in others))
