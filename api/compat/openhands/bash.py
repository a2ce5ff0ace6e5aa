"""Commands of OpenHands: started in the background, and read by polling."""

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from api.compat.call import Call
from api.compat.openhands.bodies import EventsQuery, StartBody
from api.compat.openhands.events import events_of
from api.compat.replies import json_reply, moment
from api.http.endpoint import read_query
from api.operations.commands import execute
from api.operations.processes import list_processes, read_process, signal_process
from api.shape.answers import Accepted
from api.shape.objects import validated
from orchestrator.ground.errors import ConflictError, NotFoundError
from paddock.contract.command_requests import ExecBody, OutputQuery, SignalBody
from paddock.contract.commands import Command, CommandOutput
from sandbox_agent.decide.protocol import CHUNK_BYTES

# How many pages of a command that still runs are read for its latest event.
_MOST_PAGES = 64


async def start(call: Call) -> web.Response:
    """Starts a command, at levels without a shell one of separate words."""
    given = await call.body(StartBody)
    session = call.context.session()
    seconds = None
    if given.timeout is not None:
        seconds = max(0.001, min(given.timeout, float(session.level.timeout_max)))
    text = given.command if given.command.strip() else ":"
    line = "shell" if session.level.commands is None else "command"
    body = validated(
        ExecBody, {line: text, "cwd": given.cwd, "timeout": seconds, "background": True}
    )
    answer = await call.done(execute, body=body)
    assert isinstance(answer, Accepted)  # noqa: S101 - it runs in the background
    return json_reply(_command(answer.model, given))


def _command(command: Command, given: StartBody) -> dict[str, Any]:
    return {
        "kind": "BashCommand",
        "id": command.command_id,
        "timestamp": moment(command.started_at),
        "command": given.command,
        "cwd": given.cwd,
        "timeout": given.timeout,
    }


async def search(call: Call) -> web.Response:
    """A page of events, oldest or latest first."""
    query = read_query(call.request, EventsQuery)
    command_id = query.command_id__eq or await _latest(call)
    if command_id is None or query.kind__eq not in (None, "BashOutput"):
        return json_reply({"items": [], "next_page_id": None})
    after = max(query.order__gt or 0, 0)
    if query.sort_order == "TIMESTAMP":
        page = await _read(call, command_id, after)
        items = [each for each in events_of(command_id, page, after) if each["order"] > after]
    else:
        items = await _latest_events(call, command_id, after)
    return json_reply({"items": items[: query.limit], "next_page_id": None})


async def _latest(call: Call) -> str | None:
    """The command that was started last."""
    items = (await call.done(list_processes)).items
    return items[-1].command_id if items else None


async def _read(call: Call, command_id: str, after: int) -> CommandOutput:
    query = validated(OutputQuery, {"after": str(after)})
    page: CommandOutput = await call.done(read_process, command_id=command_id, query=query)
    return page


async def _latest_events(call: Call, command_id: str, after: int) -> list[dict[str, Any]]:
    """The latest events; the first of them has the exit code, if there is one."""
    page = await _read(call, command_id, after)
    if page.exit is not None and page.next < page.exit.output_bytes:
        after = max(after, page.exit.output_bytes - CHUNK_BYTES)
        page = await _read(call, command_id, after)
    for _ in range(_MOST_PAGES):
        following = await _read(call, command_id, page.next)
        if not following.output:
            break
        after, page = page.next, following
    items = list(events_of(command_id, page, after))
    if len(items) > 1 and items[-1]["exit_code"] is not None:
        # The latest event has the latest output, too.
        ended, last = items.pop(), items.pop()
        items.append({**last, **_without_none(ended)})
    return items[::-1]


def _without_none(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if value is not None}


async def stop(call: Call) -> web.Response:
    """Ends a command. Clients take 404 for one that has ended already."""
    command_id, kill = call.request.match_info["command_id"], validated(SignalBody, {"signal": 9})
    try:
        await call.done(signal_process, command_id=command_id, body=kill)
    except ConflictError as error:
        raise NotFoundError(error.detail) from None
    return json_reply({"success": True})
