"""Limits the streams of unlimited duration that clients have open, by session and by key."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.limits import KEY_STREAMS, RETRY_SECONDS, SESSION_STREAMS
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.session import Session


class Streams:
    """Counts open streams: followed events and output, downloads and uploads."""

    def __init__(self, per_session: int, per_key: int) -> None:
        self._per_session = per_session
        self._per_key = per_key
        # Per key: the key's own streams, and (True) those of all its sessions' handles, counted
        # separately so that they can't use up the key's own.
        self._open: Counter[tuple[str, bool]] = Counter()

    @contextmanager
    def open(self, principal: Principal, kind: str, session: Session | None) -> Iterator[None]:
        """Counts a stream of that kind, which may belong to no session.

        Raises: RateLimitedError if one more exceeds a limit.
        """
        account = principal.account, principal.role is Role.HANDLE
        if session is not None:
            held = session.streams.total()
            _check(SESSION_STREAMS, "this session has", held, self._per_session)
        whose = "the handles of this key have" if account[1] else "this key has"
        _check(KEY_STREAMS, whose, self._open[account], self._per_key)
        with ExitStack() as stack:
            if session is not None:
                stack.enter_context(session.streaming(kind))
            self._open[account] += 1
            stack.callback(self._close, account)
            yield

    def _close(self, account: tuple[str, bool]) -> None:
        self._open[account] -= 1
        if not self._open[account]:
            del self._open[account]


def _check(limit: str, whose: str, held: int, most: int) -> None:
    if held >= most:
        raise RateLimitedError(
            f"{whose} {held} streams open, and {limit} is {most}: close some, or wait for their "
            "end",
            limit=limit,
            retry_after=RETRY_SECONDS,
        )
