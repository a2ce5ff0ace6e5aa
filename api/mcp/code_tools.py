"""Code as a tool: a cell in the context of its language."""

from typing import Any

from api.mcp.inputs import Inputs, part
from api.mcp.results import HeadAndTail, ToolResult
from api.mcp.tool import Caller, McpTool
from api.operations.code import run_code
from paddock.contract.code import CodeBody, CodeResult, CodeValue

_RUN = Inputs((part(CodeBody),))
# The forms that a model reads, the best first.
_READ = ("markdown", "text", "latex", "html")
_PICTURES = ("png", "jpeg", "svg", "pdf")


async def _run(caller: Caller, given: dict[str, Any]) -> ToolResult:
    (body,) = _RUN.read(given)
    async with caller.doing(run_code, body=body) as answer:
        return of_result(answer)


def of_result(result: CodeResult) -> ToolResult:
    """What came of a cell; of pictures, only which there are."""
    text = HeadAndTail()
    for piece in (result.stdout, result.stderr, *map(_shown, result.results)):
        if piece:
            text.add(piece if piece.endswith("\n") else f"{piece}\n")
    if result.error is not None:
        text.add(result.error.traceback)
    lost = "; all names are lost" if result.lost else ""
    again = "; begun anew, without earlier names" if result.restarted else ""
    members = {name: result.raw[name] for name in ("status", "execution_count", "context", "audit")}
    told = f"{text.text}[{result.status}{again}{lost}]"
    return ToolResult(told, members, failed=not result.ok)


def _shown(value: CodeValue) -> str:
    forms = (getattr(value, name) for name in _READ)
    text = next((form for form in forms if form is not None), "")
    pictures = [name for name in _PICTURES if getattr(value, name) is not None]
    return f"{text}\n[{', '.join(pictures)}]" if pictures else text


CODE_TOOLS = (
    McpTool(
        "run_code",
        "Runs a cell of Python, bash, or another language that the sandbox has, and returns what "
        "it printed and the value of its last line. Names stay from cell to cell. For levels that "
        "allow any command.",
        _RUN.schema,
        _run,
    ),
)
