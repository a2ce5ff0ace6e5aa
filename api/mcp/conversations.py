"""All conversations: begun, found again, and ended, each within the limits of its session."""

import asyncio
import secrets
from collections.abc import Callable

from api.mcp.conversation import Conversation
from api.mcp.messages import resumable
from api.mcp.streams import Streams
from orchestrator.ground.errors import BusyError, NotFoundError
from orchestrator.ground.limits import RETRY_SECONDS
from orchestrator.rules.access.keys import Principal
from orchestrator.state.session import Session

MOST_PER_SESSION = 8
MOST_PER_KEY = 128
# A conversation without requests ends after this time; clients begin another one then.
IDLE_SECONDS = 1800.0

OnEnd = Callable[[Conversation], None]


class Conversations:
    """Conversations by their ids."""

    def __init__(self) -> None:
        self._found: dict[str, Conversation] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._on_end: dict[str, Callable[[], None]] = {}

    def __len__(self) -> int:
        """The number of conversations."""
        return len(self._found)

    def begin(
        self, principal: Principal, session: Session, version: str, position: int, on_end: OnEnd
    ) -> Conversation:
        """A new conversation; it may end the one of the same session or key that is idle longest.

        `position` is the end of the session's chain; `on_end` is called once, when it has ended.
        Raises: BusyError if there are too many.
        """
        self._make_room(
            [each for each in self._found.values() if each.session is session],
            MOST_PER_SESSION,
            "this session has",
        )
        account = principal.account
        self._make_room(
            [each for each in self._found.values() if each.principal.account == account],
            MOST_PER_KEY,
            "the sessions of this key have",
        )
        streams = Streams(primed=resumable(version))
        begun = Conversation(secrets.token_hex(16), principal, session, version, position, streams)
        self._found[begun.id] = begun
        begun.use()
        self._wait(begun)

        def session_over(_over: object) -> None:
            self.end(begun)

        def ended() -> None:
            session.over.remove_done_callback(session_over)
            on_end(begun)

        session.over.add_done_callback(session_over)
        self._on_end[begun.id] = ended
        return begun

    def find(self, conversation_id: str, principal: Principal, session: Session) -> Conversation:
        """The caller's conversation. Raises: NotFoundError, also for another caller's."""
        found = self._found.get(conversation_id)
        if found is None or not found.belongs_to(principal, session):
            raise NotFoundError("this conversation has ended: send `initialize` again")
        found.use()
        self._wait(found)
        return found

    def end(self, conversation: Conversation) -> None:
        """Ends a conversation and cancels its requests."""
        if self._found.pop(conversation.id, None) is None:
            return
        self._timers.pop(conversation.id).cancel()
        conversation.end()
        self._on_end.pop(conversation.id)()

    def close(self) -> None:
        """Ends every conversation."""
        for conversation in list(self._found.values()):
            self.end(conversation)

    def _wait(self, conversation: Conversation) -> None:
        """Begins the time in which it may be idle."""
        timer = self._timers.pop(conversation.id, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[conversation.id] = loop.call_later(IDLE_SECONDS, self._idle, conversation)

    def _idle(self, conversation: Conversation) -> None:
        if conversation.busy:
            self._wait(conversation)
        else:
            self.end(conversation)

    def _make_room(self, held: list[Conversation], most: int, whose: str) -> None:
        if len(held) < most:
            return
        # A client that only listens counts as idle, because clients leave such streams behind; and
        # so does one that has left its requests.
        idle = [each for each in held if not each.awaited]
        if not idle:
            raise BusyError(
                f"{whose} {len(held)} conversations, all with requests in progress: end one",
                retry_after=RETRY_SECONDS,
            )
        self.end(min(idle, key=lambda each: (bool(each.requests), each.used_at)))
