"""The code interpreter: cells as lines of JSON, and the contexts that execute them."""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from aiohttp import web
from pydantic import ConfigDict

from api.compat.call import Call
from api.compat.e2b.failure import failure
from api.compat.e2b.inside.access import Inside, enter, inside_credential
from api.compat.e2b.inside.environments import setting, unsetting
from api.compat.e2b.inside.paths import absolute
from api.compat.protocol import Route
from api.operations.code import (
    create_code_context,
    list_code_contexts,
    remove_code_context,
    restart_code_context,
    run_code,
)
from api.shape.access import Access
from api.shape.answers import Event
from api.shape.objects import validated
from orchestrator.ground.errors import NotFoundError, ValidationError
from orchestrator.ground.serving import stream
from orchestrator.work.code.cell import CellStatus
from orchestrator.work.code.cells import CodeRequest
from paddock.contract.code import (
    CodeBody,
    CodeContext,
    CodeContextBody,
    CodeError,
    CodeExit,
    CodePrinted,
    CodeStarted,
    CodeValue,
)
from paddock.contract.problem import Problem
from paddock.contract.requests import LARGE_BODY, Body, NoBody

# These exist from the start, and their programs begin when they are first needed.
_DEFAULTS = ("python", "javascript")
_LANGUAGES = {"js": "javascript", "ts": "typescript", "python3": "python", "sh": "bash"}
_FORMS = ("html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "javascript", "data", "chart")
_STOPPED = {
    "interrupted": ("KeyboardInterrupt", "the cell was interrupted"),
    "timed_out": ("TimeoutError", "the cell's time is over"),
    "died": ("KernelDied", "the context's program has ended, and with it all names"),
}

_QUOTES = "'\""
_NOT_RECORDED = "[not recorded]"

Line = dict[str, Any]


class _Execute(Body):
    """A cell; what newer clients send besides is ignored."""

    MOST_BYTES = LARGE_BODY

    model_config = ConfigDict(extra="ignore")

    code: str
    context_id: str | None = None
    language: str | None = None
    env_vars: dict[str, str] | None = None


class _NewContext(NoBody):
    model_config = ConfigDict(extra="ignore")

    language: str | None = None
    cwd: str | None = None


async def _execute(call: Call) -> web.StreamResponse:
    inside, request = enter(call), call.request
    given = await call.body(_Execute)
    if given.context_id and given.language:
        raise ValidationError("context_id and language can't be given together", field="language")
    language = _language(given.language) if given.language else None
    chosen = {"context": given.context_id or None, "language": language}
    if given.context_id in _DEFAULTS:
        # It is made when it is first needed.
        chosen = {"context": None, "language": given.context_id}
    variables = given.env_vars or {}
    speaks = await _spoken(inside, given.context_id, language) if variables else ""
    if variables:
        await _set(inside, speaks, variables, chosen)
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    try:
        async with aclosing(_lines(inside, given.code, chosen)) as lines:
            async for line in lines:
                if line is None:
                    # The clients count their time from here on.
                    await stream.begin(request, response)
                else:
                    await stream.write(request, response, json.dumps(line).encode() + b"\n")
    finally:
        if variables:
            inside.context.work.detach(_run_silently(inside, unsetting(speaks), chosen))
    await response.write_eof()
    return response


async def _run_silently(inside: Inside, code: str, chosen: Mapping[str, str | None]) -> None:
    await inside.done(run_code, body=_cell(inside, code, chosen))


async def _set(
    inside: Inside, language: str, variables: Mapping[str, str], chosen: Mapping[str, str | None]
) -> None:
    """Sets variables for a cell. As of a command's, the record has their names only."""
    body = _cell(inside, setting(language, variables), chosen)
    shown = setting(language, dict.fromkeys(variables, _NOT_RECORDED))
    request = CodeRequest(body.code, body.timeout, shown)
    plane, principal, session = inside.plane, inside.context.principal, inside.session
    async with inside.kept():
        async with plane.contexts.turn(principal, session, body.context, body.language) as turn:
            cell = await inside.context.work.complete(
                plane.cells.begin(principal, session, turn, request),
                lambda cell: cell.stop(CellStatus.INTERRUPTED),
            )
        try:
            await asyncio.shield(cell.done)
        except asyncio.CancelledError:
            cell.stop(CellStatus.INTERRUPTED)
            raise


def _cell(inside: Inside, code: str, chosen: Mapping[str, str | None]) -> CodeBody:
    # The clients have time-outs of their own, and interrupt a cell by leaving.
    timeout = float(inside.session.level.timeout_max)
    return validated(CodeBody, {"code": code, "timeout": timeout, **chosen})


async def _lines(
    inside: Inside, code: str, chosen: Mapping[str, str | None]
) -> AsyncGenerator[Line | None]:
    """None once the cell has begun, then what comes of it."""
    async with inside.following(run_code, body=_cell(inside, code, chosen)) as events:
        async for line in _told(events):
            yield line


async def _told(events: AsyncGenerator[Event | None]) -> AsyncGenerator[Line | None]:
    raised = False
    async for event in events:
        match None if event is None else event.data:
            case CodeStarted():
                yield None
            case CodePrinted(text=text) if event is not None:
                yield {"type": event.name, "text": text, "timestamp": time.time_ns()}
            case CodeValue() as value:
                yield result(value)
            case CodeError() as error:
                raised = True
                yield _error(error.name, error.message, error.traceback)
            case CodeExit() as end:
                if end.status in _STOPPED and not raised:
                    yield _error(*_STOPPED[end.status], "")
                count = end.execution_count
                yield {"type": "number_of_executions", "execution_count": count}
            case Problem() as problem:
                yield _error("SandboxError", problem.detail, "")
            case None:
                yield {"type": "keepalive"}
            case _:
                continue


def _error(name: str, value: str, traceback: str) -> Line:
    return {"type": "error", "name": name, "value": value, "traceback": traceback}


def result(value: CodeValue) -> Line:
    """A value as a line; a text that is a quoted string is shown without its quotes."""
    line: Line = {"type": "result", "is_main_result": value.main}
    if (text := value.text) is not None:
        quoted = len(text) > 1 and text[0] in _QUOTES and text[0] == text[-1]
        line["text"] = text[1:-1] if quoted else text
    line |= {name: form for name in _FORMS if (form := getattr(value, name)) is not None}
    if value.value is not None:
        line["json"] = value.value
    if value.other:
        line["extra"] = value.other
    return line


def _language(name: str) -> str:
    return _LANGUAGES.get(name.lower(), name.lower())


async def _spoken(inside: Inside, context_id: str | None, language: str | None) -> str:
    """The language of the context that is meant."""
    if language is not None or not context_id:
        return language or _DEFAULTS[0]
    if context_id in _DEFAULTS:
        return context_id
    for context in (await inside.done(list_code_contexts)).items:
        if context.name == context_id:
            return str(context.language)
    raise NotFoundError(f"Context {context_id[:64]} not found")


# Contexts.


async def _create(call: Call) -> web.StreamResponse:
    inside = enter(call)
    given = await call.body(_NewContext)
    members: dict[str, Any] = {"language": _language(given.language or _DEFAULTS[0])}
    if given.cwd:
        members["cwd"] = inside.path(given.cwd)
    made = await inside.done(create_code_context, body=validated(CodeContextBody, members))
    return web.json_response(_context(inside, made.model))


async def _list(call: Call) -> web.StreamResponse:
    inside = enter(call)
    found = (await inside.done(list_code_contexts)).items
    shown = [_context(inside, context) for context in found]
    missing = [name for name in _DEFAULTS if all(each["id"] != name for each in shown)]
    defaults = [_shown(name, name, inside.workspace) for name in missing]
    return web.json_response([*defaults, *shown])


async def _restart(call: Call) -> web.StreamResponse:
    inside, name = enter(call), call.request.match_info["context"]
    await call.body(NoBody)
    try:
        restarted = await inside.done(restart_code_context, name=name, body=NoBody())
    except NotFoundError:
        if name not in _DEFAULTS:
            raise
        return web.json_response(_shown(name, name, inside.workspace))
    return web.json_response(_context(inside, restarted))


async def _remove(call: Call) -> web.StreamResponse:
    inside, name = enter(call), call.request.match_info["context"]
    try:
        await inside.done(remove_code_context, name=name)
    except NotFoundError:
        if name not in _DEFAULTS:
            raise
    return web.Response(status=204)


def _context(inside: Inside, context: CodeContext) -> Line:
    directory = absolute(context.cwd or ".", inside.workspace)
    return _shown(context.name, context.language, directory)


def _shown(name: str, language: str, directory: str) -> Line:
    return {"id": name, "language": language, "cwd": directory}


INTERPRETER_ROUTES: tuple[Route, ...] = tuple(
    Route(
        *(method, path, access, handler),
        stops=method == "DELETE",
        credential=inside_credential,
        failure=failure,
    )
    for method, path, access, handler in (
        ("POST", "/execute", Access.WORK, _execute),
        ("POST", "/contexts", Access.WORK, _create),
        ("GET", "/contexts", Access.READ, _list),
        ("POST", "/contexts/{context}/restart", Access.WORK, _restart),
        ("DELETE", "/contexts/{context}", Access.WORK, _remove),
    )
)
