"""Views of code: cells, their values, and contexts."""

from typing import Any

from api.shape.objects import members
from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.work.code import context as domain
from orchestrator.work.code.cell import Cell, CellEnd, CellText, Raised, Value
from paddock.contract.code import (
    CodeContext,
    CodeError,
    CodeExit,
    CodeResult,
    CodeStarted,
    CodeValue,
)
from sandbox_agent.decide.code_frames import CHART_TYPE, TABLE_TYPE

# The members of a value by MIME type.
_MEMBERS = {
    "text/plain": "text",
    "text/html": "html",
    "text/markdown": "markdown",
    "image/svg+xml": "svg",
    "image/png": "png",
    "image/jpeg": "jpeg",
    "application/pdf": "pdf",
    "text/latex": "latex",
    "application/javascript": "javascript",
    "application/json": "value",
    TABLE_TYPE: "data",
    CHART_TYPE: "chart",
}


def code_context(shown: domain.CodeContext) -> CodeContext:
    """One context."""
    command_id = None if shown.command is None else shown.command.id
    return CodeContext(
        **members(
            CodeContext,
            shown,
            status=shown.status.value,
            cwd=shown.directory,
            command_id=command_id,
        )
    )


def started(cell: Cell) -> CodeStarted:
    """A cell that has begun."""
    return CodeStarted.model_validate(_start(cell))


def value(shown: Value) -> CodeValue:
    """A value in its forms."""
    found: dict[str, Any] = {"main": shown.main}
    other: dict[str, str] = {}
    for name, part in shown.parts.items():
        if name in _MEMBERS:
            found[_MEMBERS[name]] = part
        else:
            other[name] = part
    return CodeValue.model_validate(found | ({"other": other} if other else {}))


def raised(shown: Raised) -> CodeError:
    """An exception."""
    return CodeError(**shown._asdict())


def exited(cell: Cell, end: CellEnd) -> CodeExit:
    """A cell's end. Raises: AuditUnavailableError if it is not on record."""
    return CodeExit.model_validate(_end(cell, end))


def result(cell: Cell, end: CellEnd) -> CodeResult:
    """What came of a cell. Raises: AuditUnavailableError if its end is not on record."""
    printed: dict[str, list[str]] = {"stdout": [], "stderr": []}
    for event in cell.events:
        if isinstance(event, CellText):
            printed[event.stream].append(event.text)
    return CodeResult.model_validate(
        {
            **_start(cell),
            **_end(cell, end),
            **{stream: "".join(texts) for stream, texts in printed.items()},
            "results": [value(event) for event in cell.events if isinstance(event, Value)],
            "error": None if cell.error is None else raised(cell.error),
        }
    )


def _start(cell: Cell) -> dict[str, Any]:
    return {
        "context": cell.context,
        "language": cell.language,
        "cell": cell.id,
        "command_id": cell.command_id,
    }


def _end(cell: Cell, end: CellEnd) -> dict[str, Any]:
    if not end.seq:
        raise AuditUnavailableError("the end of the cell could not be recorded")
    return {
        "status": end.status.value,
        "execution_count": end.execution_count,
        "cut_bytes": cell.cut_bytes,
        "restarted": cell.restarted,
        "lost": end.lost,
        "duration_ms": end.duration_ms,
        "audit": {"seq": end.seq, "hash": end.hash},
    }
