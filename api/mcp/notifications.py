"""Notifications to a client that listens: the tools of its session have changed."""

import asyncio
from collections.abc import AsyncGenerator

from api.mcp.conversation import Conversation, News
from api.mcp.messages import TOOLS_CHANGED, notice
from api.shape.answers import HEARTBEAT_SECONDS, Event
from api.shape.context import Context
from orchestrator.record.audit.followers import Follower, Followers
from orchestrator.record.audit.query import Selection
from orchestrator.rules.tools.tool_rules import ToolRules

MESSAGE = "message"
_LEVEL_CHANGES = frozenset({"session.settings"})


async def listen(
    context: Context, tools: ToolRules, followers: Followers, conversation: Conversation
) -> AsyncGenerator[Event | None]:
    """The notifications of a conversation until it ends, or until its client listens anew."""
    if conversation.news is not None:
        conversation.news.close()
    news = conversation.news = News()
    session = conversation.session
    selection = Selection(session.key, operations=_LEVEL_CHANGES)
    forget = tools.on_change(lambda: news.add(TOOLS_CHANGED))
    try:
        following = followers.follow(selection, conversation.position, session.over)
        with following as follower:
            watching = context.work.spawn(_watch_level(follower, conversation, news))
            try:
                async for event in _events_of(news):
                    yield event
            finally:
                watching.cancel()
                await asyncio.wait([watching])
    finally:
        forget()
        if conversation.news is news:
            conversation.news = None


async def _events_of(news: News) -> AsyncGenerator[Event | None]:
    while not news.closed:
        try:
            async with asyncio.timeout(HEARTBEAT_SECONDS):
                methods = await news.next()
        except TimeoutError:
            yield None
            continue
        for method in methods:
            yield Event(MESSAGE, notice(method))


async def _watch_level(follower: Follower, conversation: Conversation, news: News) -> None:
    """Adds news when the session has another level; closes them when it has ended."""
    while events := await follower.next():
        # A change holds the lock; it is recorded before it applies.
        async with conversation.session.lock:
            news.add(TOOLS_CHANGED)
        conversation.position = events[-1].seq
    news.close()
