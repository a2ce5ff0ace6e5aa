"""The Model Context Protocol: the session's operations as tools of an agent."""

from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from dataclasses import replace

from api.mcp.conversation import Conversation
from api.mcp.conversations import Conversations
from api.mcp.messages import (
    CANCELLED,
    INITIALIZE,
    REFUSED,
    VERSIONS,
    McpError,
    RequestId,
    answer,
    failure,
    negotiated,
    request_id,
)
from api.shape.access import Access
from api.shape.answers import Conversed, Event, EventStream, Removed, Taken
from api.shape.context import Context, whole_position
from api.shape.operation import SESSION, Events, operation
from orchestrator.ground.errors import BusyError, PaddockError, ValidationError
from orchestrator.operate.operator.reload import Reload
from orchestrator.record.audit.followers import Followers
from orchestrator.record.audit.ledger import Ledger
from orchestrator.work.terminals.session_tools import SessionTools
from orchestrator.work.terminals.terminals import Terminals
from paddock.contract.mcp import McpMessage, McpReply

_TAG = "MCP"
_PATH = SESSION + "/mcp"
_EVENTS = Events({"message": McpReply}, "from version 2025-11-25 on: the stream's and its own")
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": VERSIONS[0],
        "capabilities": {},
        "clientInfo": {"name": "example", "version": "1"},
    },
}


def cancels_request(context: Context, body: McpMessage) -> bool:
    """Whether the message cancels a request that is being answered."""
    wanted = request_id(body.params.get("requestId"))
    if body.method != CANCELLED or wanted is None:
        return False
    try:
        return wanted in _found(context).requests
    except PaddockError:
        return False


@operation(
    "POST",
    _PATH,
    Access.WORK,
    tag=_TAG,
    summary="Send a message of the Model Context Protocol",
    answers={
        200: "The answer, or its progress and the answer as events. The header `Mcp-Session-Id` "
        "names the conversation.",
        202: "A notification was taken.",
    },
    errors=("session_terminated", "busy"),
    examples={"first": _INITIALIZE},
    events=_EVENTS,
    stops=cancels_request,
    own_origin=True,
)
async def converse(
    context: Context,
    ledger: Ledger,
    session_tools: SessionTools,
    terminals: Terminals,
    body: McpMessage,
) -> Conversed[McpReply] | EventStream | Taken:
    """One message, by the streamable HTTP transport of the protocol.

    `initialize` begins a conversation; all later requests name it in the header `Mcp-Session-Id`.
    If the client disconnects, its request is cancelled, and a command that it runs is ended: from
    version 2025-11-25 on, a minute later, unless the client reads the stream on meanwhile.
    """
    if body.method == INITIALIZE:
        return await _begin(context, ledger, terminals, body)
    conversation = _conversation(context)
    if body.method is None or body.id is None:
        _note(conversation, body)
        return Taken()
    streams = context.wants_events
    # The operations that a request calls have answers of their own.
    context = replace(context, wants_events=False, last_event=None)
    primed = streams and conversation.streams.primed
    given = conversation, body.id, body, session_tools, terminals
    messages = _messages(context, *given, primed=primed)
    if streams:
        return EventStream(messages)
    async with aclosing(messages) as found:
        async for event in found:
            if event is not None and isinstance(event.data, McpReply) and event.data.id is not None:
                return Conversed(event.data, conversation.id)
    return Taken()


@operation(
    "GET",
    _PATH,
    Access.WORK,
    tag=_TAG,
    summary="Listen to notifications of the Model Context Protocol",
    answers="The notifications as they happen.",
    errors=("session_terminated",),
    events=_EVENTS,
    own_origin=True,
)
async def listen_to_conversation(
    context: Context, reload: Reload, followers: Followers
) -> EventStream:
    """What a client is told without a request: of changes of tools and resources, and logs.

    With `Last-Event-ID`, the stream of that event is read on: this one, or the answer to a request,
    which is kept for a minute. From version 2025-11-25 on, a stream begins with an event without
    data, whose id can be given.
    """
    from api.mcp.notifications import listen

    conversation = _conversation(context)
    streams, after = conversation.streams, None
    stream = streams.listening
    if streams.primed and context.last_event is not None:
        stream, after = streams.at(whole_position(context.last_event))
    with ExitStack() as held:
        held.enter_context(context.streaming("events", conversation.session))
        context.work.follow()
        if stream is streams.listening:
            events = listen(context, reload.tools, followers, conversation, after)
        else:
            events = stream.events(after, lambda: _stays(context))
        return EventStream(events, held.pop_all())


@operation(
    "DELETE",
    _PATH,
    Access.WORK,
    tag=_TAG,
    summary="End a conversation of the Model Context Protocol",
    answers="It has ended, with its requests and its terminals.",
    own_origin=True,
)
async def end_conversation(context: Context) -> Removed:
    """Ends a conversation; the session continues."""
    context.kept.of(Conversations).end(_conversation(context))
    return Removed()


async def _begin(
    context: Context, ledger: Ledger, terminals: Terminals, body: McpMessage
) -> Conversed[McpReply]:
    from api.mcp.methods import greeting

    if body.id is None:
        raise ValidationError("initialize needs an id", field="id")
    session = context.session()
    session.check_live()
    version = negotiated(body.params.get("protocolVersion"))
    position = await ledger.wait(session.key, -1)
    begun = context.kept.of(Conversations).begin(
        context.principal,
        session,
        version,
        position,
        lambda ended: _close_terminals(context, terminals, ended),
    )
    return Conversed(answer(body.id, greeting(session, version)), begun.id)


def _close_terminals(context: Context, terminals: Terminals, conversation: Conversation) -> None:
    """Ends what the conversation has opened, if the session still has it."""
    for live in terminals.live(conversation.session):
        if live.id in conversation.terminals.values() and live.reason is None:
            context.work.detach(terminals.close(conversation.session, live.id))


def _conversation(context: Context) -> Conversation:
    """The conversation that the headers name. Raises: ValidationError, NotFoundError."""
    if context.mcp_version is not None and context.mcp_version not in VERSIONS:
        known = ", ".join(VERSIONS)
        raise ValidationError(
            f"MCP-Protocol-Version must be one of {known}", field="MCP-Protocol-Version"
        )
    if context.mcp_session is None:
        raise ValidationError(
            "Mcp-Session-Id is missing: send `initialize` first", field="Mcp-Session-Id"
        )
    return _found(context)


def _found(context: Context) -> Conversation:
    """The caller's conversation in the path's session. Raises: NotFoundError."""
    known, session = context.kept.of(Conversations), context.session()
    return known.find(context.mcp_session or "", context.principal, session)


def _note(conversation: Conversation, body: McpMessage) -> None:
    """Takes a notification, or a client's answer, of which none is expected."""
    if body.method == CANCELLED:
        cancelled = request_id(body.params.get("requestId"))
        if cancelled is not None:
            conversation.cancel(cancelled)


async def _messages(
    context: Context,
    conversation: Conversation,
    called: RequestId,
    body: McpMessage,
    session_tools: SessionTools,
    terminals: Terminals,
    *,
    primed: bool,
) -> AsyncGenerator[Event | None]:
    from api.mcp.call import Call

    method = body.method or ""
    call = Call(context, conversation, called, method, body.params, session_tools, terminals)
    try:
        stream = call.begin(primed=primed)
    except McpError as error:
        yield Event("message", failure(called, error))
        return
    except BusyError as error:
        refused = McpError(REFUSED, error.detail)
        yield Event("message", failure(called, refused, context.problem(error).raw))
        return
    async with aclosing(stream.events(stays=lambda: primed and _stays(context))) as events:
        async for event in events:
            yield event


def _stays(context: Context) -> bool:
    """Whether the request of a client that has gone is worked on until it comes back."""
    return context.allowed() and not context.work.stopping
