"""Cells of code in turns."""

import asyncio
from collections.abc import Iterator

from orchestrator.programs.turns.operations.context import OperationContext
from orchestrator.programs.turns.operations.turn_operation import Done, StagedChange, turn_operation
from orchestrator.programs.turns.outcome import Value
from orchestrator.programs.turns.programs import OperationFailed
from orchestrator.work.code.cell import Cell, CellEnd, CellEvent, CellStatus, CellText, Raised
from orchestrator.work.code.cells import CodeRequest
from orchestrator.work.commands.head_and_tail import HeadAndTail
from paddock.contract.code import MOST_CODE_BYTES

# As much from the end as from the beginning.
_MOST_OUTPUT = 64 * 1024
# The forms of a value that a model reads, the best first.
_READ = ("text/markdown", "text/plain", "text/latex", "text/html")
_PICTURES = ("image/png", "image/jpeg", "image/svg+xml", "application/pdf")


async def code(
    context: OperationContext, code: str, language: str = "", milliseconds: int = 0
) -> Done:
    """Runs a cell of code, which keeps its names; returns its status and what it printed and gave.

    A policy permits it as `shell`. Raises: OperationFailed for values that no cell takes; the
    errors of `Contexts.turn` and `Cells.begin`.
    """
    request = _request(code, milliseconds)
    services, session, principal = context.services, context.session, context.principal
    async with services.contexts.turn(principal, session, None, language or None) as turn:
        cell = await services.cells.begin(principal, session, turn, request)
    try:
        end = await asyncio.shield(cell.done)
    except asyncio.CancelledError:
        cell.stop(CellStatus.INTERRUPTED)
        raise
    recorded = {"cell": cell.id, "command_id": cell.command_id, "status": end.status.value}
    return Done(_value(cell, end), recorded, staged=(StagedChange("run", command=code),))


def _request(code: str, milliseconds: int) -> CodeRequest:
    if milliseconds < 0:
        raise OperationFailed("world.code: milliseconds must not be negative")
    try:
        size = len(code.encode())
    except UnicodeEncodeError:
        raise OperationFailed("world.code: the code is not valid Unicode") from None
    if size > MOST_CODE_BYTES:
        raise OperationFailed(f"world.code: the code has more than {MOST_CODE_BYTES} bytes")
    return CodeRequest(code, milliseconds / 1000 or None)


def _value(cell: Cell, end: CellEnd) -> Value:
    output = HeadAndTail(_MOST_OUTPUT)
    for event in cell.events:
        for piece in _shown(event):
            output.add(piece.encode())
    return (
        ("status", end.status.value),
        ("output", output.text),
        ("execution-count", end.execution_count),
        ("restarted", cell.restarted),
        ("lost", end.lost),
        ("cut-bytes", cell.cut_bytes),
    )


def _shown(event: CellEvent) -> Iterator[str]:
    """What a model reads of it: of pictures, only which there are."""
    if isinstance(event, CellText):
        yield event.text
    elif isinstance(event, Raised):
        yield f"{event.traceback or f'{event.name}: {event.message}'}\n"
    else:
        yield next((f"{event.parts[name]}\n" for name in _READ if name in event.parts), "")
        pictures = [name for name in _PICTURES if name in event.parts]
        if pictures:
            yield f"[{', '.join(pictures)}]\n"


OPERATIONS = (turn_operation("world.code", code, permitted_as="shell"),)
