"""Logout tokens, by which an issuer says that a user has signed out (OpenID Connect Back-Channel
Logout 1.0): verified as other tokens are, and each is taken once.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from orchestrator.ground.errors import ValidationError
from orchestrator.rules.oidc.issuer_keys import IssuerKeys
from orchestrator.rules.oidc.issuer_terms import IssuerTerms
from orchestrator.rules.oidc.token_claims import BadTokenError, check_times
from orchestrator.rules.oidc.verification import Refused, checked

_EVENT = "http://schemas.openid.net/event/backchannel-logout"
# Issuers before the final specification say nothing, or JWT.
_TYPES = frozenset({"logout+jwt", "application/logout+jwt", "jwt", ""})
# The specification proposes two minutes at most; a slow way is allowed for.
_LONGEST_SECONDS = 600.0
# At 120 bytes each. Only an issuer can make more, and a token that is taken again changes nothing.
_MOST_TAKEN = 16_384
_MOST_ID = 512


class SignedOut(NamedTuple):
    """The user, and the time by the issuer's clock, in seconds since 1970; `id` is the token's."""

    name: str
    moment: float
    id: str
    until: float


class LogoutTokens:
    """Remembers the tokens that were taken for as long as they would be valid."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds since 1970."""
        self._now = now
        self._taken: OrderedDict[str, float] = OrderedDict()

    async def read(
        self, token: str, issuers: Mapping[str, IssuerKeys], refused: Refused
    ) -> SignedOut:
        """Who has signed out. Call `take` when that is in force.

        Raises: ValidationError; SignInUnavailableError.
        """

        def check(claims: dict[str, Any], terms: IssuerTerms, typ: str) -> tuple[float, float]:
            check_logout(claims, terms, typ)
            issued, until = check_times(claims, terms, self._now())
            until = min(until, issued + _LONGEST_SECONDS)
            if until <= self._now():
                raise BadTokenError("the logout token is too old")
            if self._taken.get(_id(terms, claims), 0.0) > self._now():
                raise BadTokenError("the logout token was taken before")
            return issued, until

        try:
            claims, terms, issued, until = await checked(token, issuers, check, refused)
        except BadTokenError:
            raise _refusal() from None
        name = terms.user_name(claims)
        if name is None:
            refused(terms.name, "the logout token has no usable 'sub'")
            raise _refusal()
        return SignedOut(name, issued, _id(terms, claims), until)

    def take(self, found: SignedOut) -> None:
        """From now on, the token is not taken again."""
        self._taken[found.id] = found.until
        while self._taken and next(iter(self._taken.values())) <= self._now():
            self._taken.popitem(last=False)
        if len(self._taken) > _MOST_TAKEN:
            self._taken.popitem(last=False)


def check_logout(claims: Mapping[str, Any], terms: IssuerTerms, typ: str) -> None:
    """Raises: BadTokenError unless it says to this client that a user has signed out."""
    if not terms.backchannel_logout:
        raise BadTokenError("a logout token, but `backchannel_logout` is not set for its issuer")
    if typ not in _TYPES:
        raise BadTokenError("its typ is not that of a logout token")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if claims.get("iss") != terms.issuer or terms.client_id not in named:
        raise BadTokenError("the logout token is not for this client")
    events = claims.get("events")
    if not isinstance(events, dict) or not isinstance(events.get(_EVENT), dict):
        raise BadTokenError("it is no logout token")
    if "nonce" in claims:
        raise BadTokenError("it has a nonce, as no logout token has")
    identity = claims.get("jti")
    if not isinstance(identity, str) or not 0 < len(identity) <= _MOST_ID:
        raise BadTokenError("the logout token has no jti")


def _id(terms: IssuerTerms, claims: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{terms.name} {claims['jti']}".encode()).hexdigest()


def _refusal() -> ValidationError:
    return ValidationError(
        "the logout token is not accepted: the operator of this Paddock has the reason in the log",
        field="logout_token",
    )
