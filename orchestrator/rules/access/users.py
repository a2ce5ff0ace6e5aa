"""Users who have signed in with tokens of issuers: until when, and who has left since.

They are principals like keys. A user's newest token says what they may do, whichever token is
presented. In memory; `user_rows` keeps what must outlive this process.
"""

import heapq
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from orchestrator.rules.access.keys import Principal
from orchestrator.rules.access.user_ends import UserEnd, UserEnds, issuer_of

# Tokens that were verified, at 300 bytes each; one that is forgotten is verified again.
MOST_TOKENS = 16_384
# Users, at 1 KB each. The one whose tokens expired first is forgotten first.
MOST_USERS = 16_384
# A header of HTTP is not longer.
_MOST_BYTES = 16 * 1024
# A principal's `sha256` is a digest, or begins with this, so that no token can be it.
_OF_USER = "user "


@dataclass(frozen=True, slots=True)
class SignedIn:
    """What the newest token of a user says. `issued_at` and `until` are in UTC.

    `holds`: how long handles outlast the last token.
    """

    principal: Principal
    issued_at: datetime
    until: datetime
    holds: timedelta


class _Token(NamedTuple):
    name: str
    issued_at: datetime
    until: datetime


class SignedInUsers:
    """The users who signed in, by name, and those who have left."""

    def __init__(self, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._clock = clock
        # In order of use.
        self._tokens: OrderedDict[str, _Token] = OrderedDict()
        self._users: OrderedDict[str, SignedIn] = OrderedDict()
        self._ends = UserEnds()
        self._moments: list[datetime] = []
        self._listeners: list[Callable[[], None]] = []

    def on_sign_in(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when somebody has signed in, so there is another expiry."""
        self._listeners.append(listener)

    def knows(self, sha256: str) -> bool:
        """Whether that token was verified."""
        return sha256 in self._tokens

    def sign_in(self, sha256: str, user: SignedIn) -> SignedIn | None:
        """Takes a verified token; returns what is new about its user, or None."""
        name = user.principal.name
        self._tokens[sha256] = _Token(name, user.issued_at, user.until)
        if len(self._tokens) > MOST_TOKENS:
            self._tokens.popitem(last=False)
        known = self._users.get(name)
        if known is not None and known.issued_at > user.issued_at:
            return None
        self.restore(user if known is None else replace(user, until=max(known.until, user.until)))
        for listener in self._listeners:
            listener()
        return self._users[name]

    def restore(self, user: SignedIn) -> None:
        """Takes a user as they were stored."""
        self._put(user)
        self._users.move_to_end(user.principal.name)
        if len(self._users) > MOST_USERS:
            self._users.popitem(last=False)
        if len(self._moments) > 4 * MOST_USERS:
            self._moments = [moment for each in self._users.values() for moment in _moments(each)]
            heapq.heapify(self._moments)
        for moment in _moments(user):
            heapq.heappush(self._moments, moment)

    def _put(self, user: SignedIn) -> None:
        name = user.principal.name
        principal = replace(user.principal, expires_at=user.until, sha256=_OF_USER + name)
        self._users[name] = replace(user, principal=principal)

    def leave(self, end: UserEnd) -> bool:
        """From now on, nothing is valid that it ends; returns whether that is news."""
        return self._ends.add(end)

    def has_left(self, user: SignedIn) -> bool:
        """Whether the user has left, or signed out, since that token was issued."""
        return user.issued_at <= self._ends.of_tokens(user.principal.name)

    def has_signed_in(self, name: str) -> bool:
        """Whether any token of the user is valid."""
        user = self._users.get(name)
        return user is not None and user.until > self._clock() and not self.has_left(user)

    def end(self, name: str) -> None:
        """The issuer vouches for the user no more, or no rule permits them: handles end, too."""
        user = self._users.get(name)
        if user is not None:
            self._put(replace(user, until=self._clock(), holds=timedelta()))

    def verify_again(self, issuers: Collection[str]) -> None:
        """Every token is to be verified anew; the users of any other issuer are gone."""
        self._tokens.clear()
        now = self._clock()
        for name, user in list(self._users.items()):
            if issuer_of(name) not in issuers:
                self.end(name)
            elif user.until > now:
                self._put(replace(user, until=now))

    def authenticate(self, sha256: str) -> Principal | None:
        """The user whose token has that digest; None for an unknown one, or of one who left."""
        token = self._tokens.get(sha256)
        user = None if token is None else self._users.get(token.name)
        if token is None or user is None or token.issued_at <= self._ends.of_tokens(token.name):
            return None
        self._tokens.move_to_end(sha256)
        return replace(user.principal, expires_at=token.until)

    def current(self, sha256: str) -> Principal | None:
        """The user as they are now, by the `sha256` of their principal."""
        user = self._users.get(sha256.removeprefix(_OF_USER)) if sha256 else None
        return None if user is None or self.has_left(user) else user.principal

    def named(self, name: str) -> Principal | None:
        """The user with that name. Whoever has left is as if their tokens had expired then."""
        user = self._users.get(name)
        if user is None:
            return None
        left = self._ends.of_tokens(name)
        if user.issued_at <= left:
            return replace(user.principal, expires_at=min(left, user.until))
        return user.principal

    def holds(self, owner: str, since: datetime) -> bool:
        """Whether handles of the owner's sessions that began at `since` are still valid.

        They end for good when their user leaves, and for a while when no token is valid for long.
        """
        if since <= self._ends.of_handles(owner):
            return False
        user = self._users.get(owner)
        # Whoever has a session had signed in when it began, perhaps on another machine.
        until = since if user is None else max(user.until, since)
        holds = timedelta(hours=12) if user is None else user.holds
        return until + holds > self._clock()

    @property
    def next_expiry(self) -> datetime | None:
        """The time when the next sign-in, or the next handle, expires."""
        now = self._clock()
        while self._moments and self._moments[0] <= now:
            heapq.heappop(self._moments)
        return self._moments[0] if self._moments else None

    def page(self, after: str, most: int) -> list[SignedIn]:
        """The users by name, from the one after that name on."""
        names = heapq.nsmallest(most, (name for name in self._users if name > after))
        return [self._users[name] for name in names]


def is_user_token(text: str) -> bool:
    """Whether it has the form of a signed token, which no key or handle has."""
    return text.startswith("eyJ") and text.count(".") == 2 and len(text) <= _MOST_BYTES


def _moments(user: SignedIn) -> tuple[datetime, datetime]:
    """When tokens and handles expire."""
    return user.until, user.until + user.holds
