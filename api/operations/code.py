"""Code: cells, executed one after the other in contexts that keep their names."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, aclosing, contextmanager

from api.shape import stops
from api.shape.access import Access
from api.shape.answers import HEARTBEAT_SECONDS, Event, EventStream, Made
from api.shape.context import Context
from api.shape.operation import SESSION, WORK_ERRORS, Events, operation
from api.views import code as views
from orchestrator.work.code.cell import Cell, CellStatus, CellText, Raised
from orchestrator.work.code.cells import Cells, CodeRequest
from orchestrator.work.code.contexts import Contexts
from paddock.contract.code import (
    CODE_EVENTS,
    CodeBody,
    CodeContext,
    CodeContextBody,
    CodeContexts,
    CodePrinted,
    CodeResult,
)
from paddock.contract.requests import NoBody

_TAG = "Code"
_CODE = SESSION + "/code"
_CONTEXTS = _CODE + "/contexts"
_CONTEXT = _CONTEXTS + "/{name}"
_ERRORS = (*WORK_ERRORS, "engine_unavailable")


@operation(
    "POST",
    _CODE,
    Access.WORK,
    tag=_TAG,
    summary="Run code",
    answers="What came of the cell, or its events as they happen.",
    errors=_ERRORS,
    examples={
        "python": {"code": "print('hello')\n6 * 7"},
        "context": {"code": "df.describe()", "context": "analysis", "timeout": 30},
        "bash": {"code": "cd src && ls", "language": "bash"},
    },
    events=Events(CODE_EVENTS, "nothing: a cell's events can't be resumed"),
    restores=True,
)
async def run_code(
    context: Context, contexts: Contexts, cells: Cells, body: CodeBody
) -> CodeResult | EventStream:
    """Executes a cell in a context, which keeps names from cell to cell.

    With `Accept: text/event-stream`, the answer is its live output. Cells of a context wait for
    each other. A cell whose client leaves is interrupted.
    """
    session = context.session()
    request = CodeRequest(body.code, body.timeout)
    with ExitStack() as held:
        if context.wants_events:
            # This is first, so that one stream too many is refused before anything runs.
            held.enter_context(context.streaming("output", session))
        async with contexts.turn(context.principal, session, body.context, body.language) as turn:
            cell = await context.work.complete(
                cells.begin(context.principal, session, turn, request),
                lambda cell: _leave(context, cell),
            )
        held.enter_context(_attended(context, cell))
        if context.wants_events:
            return EventStream(_watch(cell), held.pop_all())
        end = await asyncio.shield(cell.done)
        return views.result(cell, end)


async def _watch(cell: Cell) -> AsyncGenerator[Event | None]:
    yield Event("start", views.started(cell))
    async with aclosing(cell.follow(HEARTBEAT_SECONDS)) as events:
        async for event in events:
            if event is None:
                yield None
            elif isinstance(event, CellText):
                yield Event(event.stream, CodePrinted(text=event.text))
            elif isinstance(event, Raised):
                yield Event("exception", views.raised(event))
            else:
                yield Event("result", views.value(event))
    yield Event("exit", views.exited(cell, cell.done.result()))


@contextmanager
def _attended(context: Context, cell: Cell) -> Iterator[None]:
    """Attends a cell: if the client disconnects meanwhile, the cell is interrupted."""
    try:
        yield
    except (asyncio.CancelledError, ConnectionError):
        _leave(context, cell)
        raise


def _leave(context: Context, cell: Cell) -> None:
    # At a shutdown, it is not the client that left.
    if not context.work.stopping:
        cell.stop(CellStatus.INTERRUPTED)


@operation(
    "POST",
    _CONTEXTS,
    Access.WORK,
    tag=_TAG,
    summary="Create a code context",
    answers="The context.",
    errors=_ERRORS,
    examples={"analysis": {"name": "analysis", "language": "python", "cwd": "src"}},
    restores=True,
)
async def create_code_context(
    context: Context, contexts: Contexts, body: CodeContextBody
) -> Made[CodeContext]:
    """Begins a program that executes cells of a language, in a directory of the workspace."""
    creating = contexts.create(
        context.principal, context.session(), body.name, body.language, body.cwd
    )
    return Made(views.code_context(await context.work.complete(creating)))


@operation(
    "GET",
    _CONTEXTS,
    Access.READ,
    tag=_TAG,
    summary="List code contexts",
    answers="The contexts.",
)
async def list_code_contexts(context: Context, contexts: Contexts) -> CodeContexts:
    """The session's contexts, in the order of their creation."""
    found = contexts.listed(context.session())
    return CodeContexts(items=[views.code_context(each) for each in found], next=None)


@operation(
    "POST",
    _CONTEXT + "/restart",
    Access.WORK,
    tag=_TAG,
    summary="Restart a code context",
    answers="The context.",
    errors=_ERRORS,
    restores=True,
)
async def restart_code_context(
    context: Context, contexts: Contexts, name: str, body: NoBody
) -> CodeContext:
    """Ends the context's program, and begins it anew, without its names."""
    restarting = contexts.restart(context.principal, context.session(), name)
    return views.code_context(await context.work.complete(restarting))


@operation(
    "POST",
    _CONTEXT + "/interrupt",
    Access.WORK,
    tag=_TAG,
    summary="Interrupt a code context",
    answers="The context.",
    errors=WORK_ERRORS,
    stops=stops.interrupts_code,
)
async def interrupt_code_context(
    context: Context, contexts: Contexts, name: str, body: NoBody
) -> CodeContext:
    """Interrupts the cell that is executed, if there is one; its names stay.

    A cell that does not end within 5 s is ended with its context's program.
    """
    return views.code_context(contexts.interrupt(context.session(), name))


@operation(
    "DELETE",
    _CONTEXT,
    Access.WORK,
    tag=_TAG,
    summary="Remove a code context",
    answers="The context as it was removed.",
    errors=("sandbox_unavailable",),
    stops=stops.removes_code_context,
)
async def remove_code_context(context: Context, contexts: Contexts, name: str) -> CodeContext:
    """Ends the context's program, and the cell that it executes."""
    removing = contexts.remove(context.session(), name)
    return views.code_context(await context.work.complete(removing))
