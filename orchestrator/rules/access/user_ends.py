"""Ends of users: who has left, or signed out, and since when nothing older is valid."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from orchestrator.rules.access.keys import USER_MARK

# No token is accepted for longer after it was issued (`max_token_seconds` in the file of issuers).
LONGEST_TOKEN = timedelta(days=7)
_NEVER = datetime.min.replace(tzinfo=UTC)
# At 200 bytes each; above it, those are forgotten that concern no token any more.
_MOST_SIGNED_OUT = 16_384


class UserEndKind(StrEnum):
    """What is not valid any more."""

    LEFT = "left"  # tokens, and handles of sessions, for good
    SIGNED_OUT = "signed-out"  # tokens; handles hold for as long as after any last token


class UserEnd(NamedTuple):
    """`name` is a user's, or the mark and an issuer's. `moment` is in UTC: what is newer counts."""

    name: str
    what: UserEndKind
    moment: datetime


class UserEnds:
    """The newest of each user and of each issuer."""

    def __init__(self) -> None:
        self._moments: dict[tuple[str, UserEndKind], datetime] = {}

    def add(self, end: UserEnd) -> bool:
        """Returns whether it ends anything that an earlier one has not ended."""
        key = end.name, end.what
        if self._moments.get(key, _NEVER) >= end.moment:
            return False
        self._moments[key] = end.moment
        if len(self._moments) > _MOST_SIGNED_OUT and end.what is UserEndKind.SIGNED_OUT:
            self._forget(end.moment - LONGEST_TOKEN - timedelta(days=1))
        return True

    def of_tokens(self, name: str) -> datetime:
        """Since when a token must have been issued to be the user's."""
        return max(self._of(name, UserEndKind.LEFT), self._of(name, UserEndKind.SIGNED_OUT))

    def of_handles(self, name: str) -> datetime:
        """Since when a session must have begun for the user's handle of it."""
        return self._of(name, UserEndKind.LEFT)

    def _of(self, name: str, what: UserEndKind) -> datetime:
        issuer = USER_MARK + issuer_of(name)
        return max(self._moments.get((each, what), _NEVER) for each in (name, issuer))

    def _forget(self, before: datetime) -> None:
        self._moments = {
            key: moment
            for key, moment in self._moments.items()
            if key[1] is UserEndKind.LEFT or moment > before
        }


def issuer_of(name: str) -> str:
    """The issuer in the name of a user."""
    return name.rpartition(USER_MARK)[2]
