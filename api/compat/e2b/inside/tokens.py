"""Which handles callers have shown: whose signed addresses they are, and which sandbox is gone.

Nothing is kept beyond this process; a handle counts only while its session accepts it.
"""

from collections import OrderedDict
from collections.abc import Iterable

from orchestrator.rules.access.keys import digest
from orchestrator.state.session import Session

_MOST_LIVE = 4096
_MOST_GONE = 16_384


class Tokens:
    """Handles of live sessions by the sessions' ids, and the digests of those that are gone."""

    def __init__(self) -> None:
        self._live: OrderedDict[str, str] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()

    def note(self, session: Session, token: str) -> None:
        """The session's handle, as its caller has it."""
        if self._live.get(session.id) == token:
            return
        self._live[session.id] = token
        if len(self._live) > _MOST_LIVE:
            self._live.popitem(last=False)
        session.over.add_done_callback(lambda _: self._leave(session.id, token))

    def _leave(self, session_id: str, token: str) -> None:
        if self._live.get(session_id) == token:
            del self._live[session_id]
        self._gone[digest(token)] = None
        if len(self._gone) > _MOST_GONE:
            self._gone.popitem(last=False)

    def is_gone(self, token: str) -> bool:
        """Whether it was the handle of a session that has ended."""
        return digest(token) in self._gone

    def live(self, session_id: str | None) -> Iterable[str]:
        """The handle of that session, or those of all."""
        if session_id is None:
            return list(self._live.values())
        found = self._live.get(session_id)
        return [] if found is None else [found]
