"""Runs over a WebSocket: messages in, their runs' events and results out."""

from collections.abc import AsyncGenerator, Collection
from contextlib import ExitStack, aclosing

from api.operations.runs import RunServices, begin, watch
from api.shape.access import Access
from api.shape.answers import Event, Exchange
from api.shape.context import Context
from api.shape.objects import parse_object, validated
from api.shape.operation import SESSION, Frames, operation
from orchestrator.ground.errors import ValidationError
from orchestrator.programs.turns.host_tools import HostTools
from orchestrator.programs.turns.session_turns import SessionTurns
from orchestrator.rules.policy.levels import Levels
from orchestrator.sessions.sessions import Sessions
from orchestrator.work.models.models import Models
from orchestrator.work.terminals.session_tools import SessionTools
from paddock.contract.run_sockets import RunFrame, RunSocketFrame


@operation(
    "GET",
    SESSION + "/run",
    Access.WORK,
    tag="Runs",
    summary="Send messages and follow their runs over a WebSocket",
    answers={101: "The WebSocket. The content describes the server's text frames."},
    errors=("session_terminated", "permission_denied"),
    own_origin=True,
    frames=Frames(
        "paddock.run",
        text=RunFrame,
        data=None,
        closes={
            1000: "Nothing ran and nothing was sent for 10 minutes.",
            1001: "The control plane stops, or the credential is not valid any more.",
            1003: "A frame was binary.",
            1007: "A frame was not UTF-8.",
            1009: "A frame had more than 640 KiB.",
        },
    ),
)
async def open_run_socket(
    context: Context,
    levels: Levels,
    sessions: Sessions,
    turns: SessionTurns,
    models: Models,
    session_tools: SessionTools,
    host_tools: HostTools,
) -> Exchange[RunSocketFrame]:
    """A client sends `{"type": "run", "session_id", "permission_level"?, "input"}`.

    Members of `render` may be added. The events of the run are those of `send`, as `{"event", "id",
    "data"}`; `end` or `error` is the last one, and another message may follow. A frame that is
    refused changes nothing, and is answered with the event `refused`, whose `data` is a problem
    document. One run of a socket goes on at a time; it goes on if the socket is closed. The caller
    sends its credential in `Authorization`, or offers the subprotocols `paddock.run` and
    `ticket.<ticket>`. A message has at most 640 KiB (1009); a socket on which nothing runs and
    nothing is sent for 10 minutes is closed with 1000. Each message counts as a request.
    """
    session = context.session()
    session.check_live()
    services = RunServices(sessions, turns, models, session_tools, host_tools)

    def asked(text: str) -> AsyncGenerator[Event | None]:
        """The events of the run that a frame asks for.

        Raises: ValidationError, RateLimitedError.
        """
        context.spend()
        frame = wanted_run(text, context.session_id, levels)
        return _events(context, services, frame)

    with ExitStack() as held:
        held.enter_context(context.streaming("output", session))
        context.work.follow()
        return Exchange(
            asked,
            frame_of,
            lambda error: Event("refused", context.problem(error)),
            held.pop_all(),
        )


async def _events(
    context: Context, services: RunServices, frame: RunFrame
) -> AsyncGenerator[Event | None]:
    started = await begin(context, services, frame, (frame.input,))
    async with aclosing(watch(context, services.turns, started)) as events:
        async for event in events:
            yield event


def wanted_run(text: str, session_id: str, levels: Collection[str]) -> RunFrame:
    """What a client's frame asks for, in a session; `levels` are those that it may name.

    Raises: ValidationError.
    """
    data = parse_object(text.encode("utf-8", "surrogatepass"))
    frame = validated(RunFrame, data, {"levels": levels})
    if frame.session_id != session_id:
        raise ValidationError("session_id must be the one of the address", field="session_id")
    return frame


def frame_of(event: Event) -> RunSocketFrame:
    """An event as the server's frame."""
    return RunSocketFrame.model_validate({"event": event.name, "id": event.id, "data": event.data})
