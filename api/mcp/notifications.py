"""What a client that listens is told: changes of its tools and resources, and log messages."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from api.mcp.conversation import Conversation
from api.mcp.messages import TOOLS_CHANGED, notice
from api.mcp.subscriptions import updated
from api.shape.answers import Event
from api.shape.context import Context
from orchestrator.record.audit.followers import Follower, Followers
from orchestrator.record.audit.query import Selection
from orchestrator.record.audit.recorded_event import Recorded
from orchestrator.rules.tools.tool_rules import ToolRules

_LEVEL_CHANGE = "session.settings"


async def listen(
    context: Context,
    tools: ToolRules,
    followers: Followers,
    conversation: Conversation,
    after: int | None,
) -> AsyncGenerator[Event | None]:
    """What the client is told until its conversation ends, or until it listens anew.

    It begins after that message, or with those that the client did not get.
    """
    session, stream = conversation.session, conversation.streams.listening
    forget = tools.on_change(lambda: stream.add(notice(TOOLS_CHANGED), once=True))
    try:
        following = followers.follow(Selection(session.key), conversation.position, session.over)
        with following as follower:
            watching = context.work.spawn(_tell(follower, conversation))
            try:
                async with aclosing(stream.events(after)) as events:
                    async for event in events:
                        yield event
            finally:
                watching.cancel()
                await asyncio.wait([watching])
    finally:
        forget()


async def _tell(follower: Follower, conversation: Conversation) -> None:
    """Tells of the session's events, and ends the stream when the session has ended."""
    stream = conversation.streams.listening
    while events := await follower.next():
        changed = any(each.operation == _LEVEL_CHANGE for each in events)
        if changed:
            # A change holds the lock; it is recorded before it applies.
            async with conversation.session.lock:
                pass
        # A client that listens anew has two followers for a moment.
        new = [each for each in events if each.seq > conversation.position]
        conversation.position = max(conversation.position, events[-1].seq)
        if changed:
            stream.add(notice(TOOLS_CHANGED), once=True)
        _add(conversation, new)
    stream.end()


def _add(conversation: Conversation, events: list[Recorded]) -> None:
    stream = conversation.streams.listening
    for event in events:
        message = conversation.log.message(event)
        if message is not None:
            stream.add(message)
    for uri in conversation.subscriptions.changed_by(each.operation for each in events):
        stream.add(updated(uri), once=True)
