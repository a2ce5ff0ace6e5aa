"""Commands: run, watch, feed, signal."""

from http import HTTPStatus

from api import stops
from api.auth import Access
from api.operations.base import SESSION, Events, Operation, Reply, ok
from api.queries import OutputQuery
from api.routes import commands, processes
from api.schemas import ExecBody, SignalBody, StdinBody
from paddock.contract.commands import (
    COMMAND_EVENTS,
    Command,
    CommandOutput,
    CommandResult,
    Commands,
    InputTaken,
    PendingCommand,
    SignalSent,
)

_TAG = "Commands"
_PROCESS = SESSION + "/processes/{command_id}"
_WORK = (
    "session_terminated",
    "invalid_transition",
    "conflict",
    "busy",
    "permission_denied",
    "sandbox_unavailable",
)
_EVENTS = Events(COMMAND_EVENTS, "the bytes of output so far, both streams together")

OPERATIONS = (
    Operation(
        "POST",
        SESSION + "/exec",
        commands.execute,
        Access.WORK,
        body=ExecBody,
        id="exec",
        tag=_TAG,
        summary="Run a command",
        replies={
            HTTPStatus.OK: Reply(
                "What the command came to, or its events as they happen.",
                CommandResult,
                events=_EVENTS,
            ),
            HTTPStatus.ACCEPTED: Reply(
                "It runs in the background, or a person has not decided yet and nothing was run.",
                Command,
                others=(PendingCommand,),
            ),
        },
        errors=(*_WORK, "engine_unavailable"),
        examples={
            "command": {"command": "ls -la"},
            "argv": {"argv": ["grep", "-rn", "TODO", "src"], "timeout": 30},
            "background": {"argv": ["find", ".", "-name", "*.py"], "background": True},
        },
    ),
    Operation(
        "GET",
        SESSION + "/processes",
        processes.list_all,
        Access.READ,
        id="list_processes",
        tag=_TAG,
        summary="List a session's commands",
        replies=ok("The commands.", Commands),
    ),
    Operation(
        "GET",
        _PROCESS,
        processes.read,
        Access.READ,
        query=OutputQuery,
        id="read_process",
        tag=_TAG,
        summary="Read or follow a command's output",
        replies=ok(
            "The command and its output, or its events as they happen.",
            CommandOutput,
            events=_EVENTS,
        ),
        errors=("permission_denied", "sandbox_unavailable"),
    ),
    Operation(
        "POST",
        _PROCESS + "/stdin",
        processes.feed,
        Access.WORK,
        body=StdinBody,
        id="feed_process",
        tag=_TAG,
        summary="Feed a command's standard input",
        replies=ok("What was fed.", InputTaken),
        errors=_WORK,
        examples={"line": {"data": "yes\n"}, "end": {"close": True}},
    ),
    Operation(
        "POST",
        _PROCESS + "/signal",
        processes.signal,
        Access.WORK,
        body=SignalBody,
        stops=stops.signals_command,
        id="signal_process",
        tag=_TAG,
        summary="Signal a command",
        replies=ok("The signal that was sent.", SignalSent),
        errors=_WORK,
        examples={"name": {"signal": "TERM"}, "number": {"signal": 2}},
    ),
)
