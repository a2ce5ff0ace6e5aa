"""Limits the streams of unlimited duration that clients have open, by session and by key."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from orchestrator.ground.counts import Counts
from orchestrator.ground.errors import RateLimitedError
from orchestrator.ground.limits import KEY_STREAMS, RETRY_SECONDS, SESSION_STREAMS
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.state.session import Session


class Streams:
    """Counts open streams: followed events and output, downloads and uploads."""

    def __init__(self, per_session: int, per_key: int) -> None:
        self._per_session = per_session
        # Per key: the key's own streams, and (True) those of all its sessions' handles, counted
        # separately so that they can't use up the key's own.
        self._open: Counts[tuple[str, bool]] = Counts(per_key)

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
        _check(KEY_STREAMS, whose, self._open.of(account), self._open.most)
        of_session = nullcontext() if session is None else session.streaming(kind)
        with of_session, self._open.taken(account):
            yield


def _check(limit: str, whose: str, held: int, most: int) -> None:
    if held >= most:
        raise RateLimitedError(
            f"{whose} {held} streams open, and {limit} is {most}: close some, or wait for their "
            "end",
            limit=limit,
            retry_after=RETRY_SECONDS,
        )
