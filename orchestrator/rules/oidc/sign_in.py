"""Who has a token: verifies it once, by the keys of its issuer, and makes a principal of its user.

Whoever is refused is told what to do, and nothing of why: the log says that to the operator.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from orchestrator.ground.errors import (
    NotFoundError,
    PermissionDeniedError,
    RateLimitedError,
    UnauthorizedError,
)
from orchestrator.ground.store.database import Database
from orchestrator.ground.store.database_file import StoreError
from orchestrator.rules.access.keys import KeyRing, Principal, digest
from orchestrator.rules.access.user_ends import UserEnd
from orchestrator.rules.access.users import SignedIn, SignedInUsers
from orchestrator.rules.oidc import user_rows
from orchestrator.rules.oidc.issuer_terms import IssuerTerms
from orchestrator.rules.oidc.issuers_file import IssuersFile
from orchestrator.rules.oidc.sign_in_events import SignInEvents, UntoldEvents

if TYPE_CHECKING:
    from orchestrator.rules.oidc.issuer_keys import IssuerKeys
    from orchestrator.rules.oidc.logout_tokens import LogoutTokens, SignedOut

# Tokens that are verified or redeemed at once; each may wait for its issuer.
_MOST_AT_ONCE = 64
NO_RULE, BAD_TOKEN = "no-sign-in-rule", "sign-in-refused"

log = logging.getLogger(__name__)


class Tokens(NamedTuple):
    """What a sign-in yields. `token` is for this API; `expires_in` is in seconds."""

    token: str
    refresh_token: str | None
    expires_in: float
    user: Principal


class SignInPlace(NamedTuple):
    """Where users of one issuer sign in; `problem`: why they can't now."""

    terms: IssuerTerms
    authorization: str | None
    device: str | None
    token: str | None
    problem: bool


class SignIn:
    """The issuers in force, and the users who have signed in. Nobody can without the file."""

    def __init__(
        self,
        file: IssuersFile,
        keys: KeyRing,
        users: SignedInUsers,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._file = file
        self._keys = keys
        self.users = users
        self._now = now
        self._database: Database | None = None
        self._issuers: dict[str, IssuerKeys] = {}
        self._logouts: LogoutTokens | None = None
        self._busy = 0
        # Puts on record what happens here.
        self.events: SignInEvents = UntoldEvents()
        self._admitting = asyncio.Lock()
        if file.path is not None:
            keys.know(users)
            self._follow()
            file.on_change(self._changed)

    @property
    def enabled(self) -> bool:
        """Whether anybody may sign in."""
        return bool(self._issuers)

    async def load(self, database: Database) -> None:
        """Knows the users who signed in before this start, and stores those to come.

        Raises: StoreError.
        """
        if self._file.path is None:
            return
        self._database = database
        await user_rows.load(database, self.users)
        self.users.verify_again([each.name for each in self._file.all])

    def _follow(self) -> None:
        # Without an issuer, the library is not loaded.
        from orchestrator.rules.oidc.issuer_fetch import IssuerHttp
        from orchestrator.rules.oidc.issuer_keys import IssuerKeys

        http = IssuerHttp()
        self._issuers = {each.issuer: IssuerKeys(each, http) for each in self._file.all}
        if self._logouts is None and any(each.backchannel_logout for each in self._file.all):
            from orchestrator.rules.oidc.logout_tokens import LogoutTokens

            self._logouts = LogoutTokens(lambda: self._now().timestamp())

    def _changed(self) -> None:
        self._follow()
        self.users.verify_again([each.name for each in self._file.all])
        self._keys.announce()

    async def offers(self) -> list[SignInPlace]:
        """Where users can sign in; asks each issuer for it."""
        return list(await asyncio.gather(*map(_offer, self._issuers.values())))

    async def learn(self, token: str) -> None:
        """Verifies a token that is not known yet, so that the keys know it.

        Raises: UnauthorizedError; PermissionDeniedError if no rule is for its user;
        SignInUnavailableError if that can't be known now; RateLimitedError.
        """
        if self.enabled and not self.users.knows(digest(token)):
            await self._verify(token)

    async def redeem(self, name: str, form: Mapping[str, str], nonce: str | None) -> Tokens:
        """What the issuer with that name gives for a code or a refresh token.

        Raises: as `learn`; NotFoundError.
        """
        from orchestrator.rules.oidc import redemption

        issuer = next((each for each in self._issuers.values() if each.terms.name == name), None)
        if issuer is None:
            raise NotFoundError("no issuer has this name: /api/sign-in lists them")
        with self._place():
            now = self._now().timestamp()
            answer = await redemption.redeem(issuer, form, nonce, now, self._refused)
        user, until = await self._verify(answer.token, begins=nonce is not None)
        left = (until - self._now()).total_seconds()
        return Tokens(answer.token, answer.refresh_token, max(0.0, left), user)

    async def signed_out(self, token: str) -> "SignedOut":
        """Whose sign-out an issuer tells by that token; `take_logout` when it is in force.

        Raises: NotFoundError if no issuer does; ValidationError; as `learn`.
        """
        if self._logouts is None:
            raise NotFoundError("no issuer in the file has backchannel_logout")
        with self._place():
            return await self._logouts.read(token, self._issuers, self._refused)

    def take_logout(self, found: "SignedOut") -> None:
        """From now on, the token is not taken again."""
        if self._logouts is not None:
            self._logouts.take(found)

    def end_user(self, end: UserEnd) -> bool:
        """Refuses what it ends from now on; returns whether that is news."""
        news = self.users.leave(end)
        if news:
            self._keys.announce()
        return news

    async def _verify(self, token: str, *, begins: bool = False) -> tuple[Principal, datetime]:
        """Who has the token, and until when. `begins`: a person has just signed in for it."""
        from orchestrator.rules.oidc.verification import verify

        with self._place():
            claims, terms, issued, until = await verify(
                token, self._issuers, self._now().timestamp(), self._refused
            )
        user = SignedIn(
            self._admitted(claims, terms),
            datetime.fromtimestamp(issued, UTC),
            datetime.fromtimestamp(until, UTC),
            timedelta(seconds=terms.handles_hold_seconds),
        )
        # One after the other, so that a sign-in is on record once, and before it counts.
        async with self._admitting:
            self._check_ended(user, terms)
            if begins or not self.users.has_signed_in(user.principal.name):
                await self.events.signed_in(user)
                self._check_ended(user, terms)
            new = self.users.sign_in(digest(token), user)
        if new is not None:
            await self._store(new)
        return user.principal, user.until

    def _check_ended(self, user: SignedIn, terms: IssuerTerms) -> None:
        """Raises: UnauthorizedError for a token from before its user left."""
        if self.users.has_left(user):
            self._refused(terms.name, "it was issued before its user left, or signed out")
            raise UnauthorizedError("this sign-in is not valid any more: sign in again")

    def _admitted(self, claims: dict[str, Any], terms: IssuerTerms) -> Principal:
        """The user of verified claims. Raises: PermissionDeniedError."""
        name = terms.user_name(claims)
        principal = None if name is None else terms.principal(name, claims)
        if name is None or principal is None:
            why = f"its token has no usable {terms.user!r}" if name is None else "no rule matches"
            self._refused(terms.name, why, NO_RULE)
            if name is not None:
                self.users.end(name)
                self._keys.announce()
            raise PermissionDeniedError(
                "you have signed in, but have no access here: ask the operator of this Paddock "
                "for it, then sign in again",
                rule=NO_RULE,
            )
        return principal

    def _refused(self, issuer: str, why: str, rule: str = BAD_TOKEN) -> None:
        """Says to the operator, and to nobody else, why somebody is refused."""
        log.warning("a sign-in by the issuer %s is refused: %s", issuer, why)
        self.events.refused(issuer, why, rule)

    async def _store(self, user: SignedIn) -> None:
        """What is stored is for sessions after a restart; without it, they have no tools."""
        if self._database is None:
            return
        try:
            await self._database.write(user_rows.storing(user))
        except StoreError as error:
            log.warning("the sign-in of %s is not stored: %s", user.principal.name, error)

    def _place(self) -> "_Place":
        return _Place(self)


class _Place:
    """One of the tokens that are under way. Raises: RateLimitedError if there are too many."""

    def __init__(self, owner: SignIn) -> None:
        self._owner = owner

    def __enter__(self) -> None:
        if self._owner._busy >= _MOST_AT_ONCE:
            raise RateLimitedError(
                f"{_MOST_AT_ONCE} users sign in at this moment: try again",
                limit="sign_ins",
                retry_after=1.0,
            )
        self._owner._busy += 1

    def __exit__(self, *_: object) -> None:
        self._owner._busy -= 1


async def _offer(issuer: "IssuerKeys") -> SignInPlace:
    from orchestrator.rules.oidc.issuer_fetch import IssuerError

    try:
        found = await issuer.published()
    except IssuerError:
        return SignInPlace(issuer.terms, None, None, None, problem=True)
    return SignInPlace(issuer.terms, found.authorization, found.device, found.token, problem=False)
