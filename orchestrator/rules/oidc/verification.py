"""Verifies a token by its issuer's keys, and says the same to everybody who is refused."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from orchestrator.ground.errors import SignInUnavailableError, UnauthorizedError
from orchestrator.rules.oidc.issuer_fetch import IssuerError
from orchestrator.rules.oidc.issuer_keys import IssuerKeys
from orchestrator.rules.oidc.issuer_terms import IssuerTerms
from orchestrator.rules.oidc.token_claims import (
    BadTokenError,
    check_recipient,
    check_times,
    header_of,
    verified,
)

_REFUSED = "the token is not valid here, or has expired: sign in again"
# Is told of an issuer's name, and why a token is refused.
Refused = Callable[[str, str], None]
# Looks at verified claims and the header's `typ`; when the token was issued and ends, in seconds
# since 1970. Raises: BadTokenError.
Check = Callable[[dict[str, Any], IssuerTerms, str], tuple[float, float]]


class Verified(NamedTuple):
    """The claims, whose they are, and when it was issued and ends, in seconds since 1970."""

    claims: dict[str, Any]
    terms: IssuerTerms
    issued: float
    until: float


async def verify(
    token: str, issuers: Mapping[str, IssuerKeys], now: float, refused: Refused
) -> Verified:
    """Raises: UnauthorizedError; SignInUnavailableError if the issuer's keys are not known."""

    def check(claims: dict[str, Any], terms: IssuerTerms, typ: str) -> tuple[float, float]:
        check_recipient(claims, terms, typ)
        return check_times(claims, terms, now)

    try:
        return await checked(token, issuers, check, refused)
    except BadTokenError:
        raise UnauthorizedError(_REFUSED) from None


async def checked(
    token: str, issuers: Mapping[str, IssuerKeys], check: Check, refused: Refused
) -> Verified:
    """A token that its issuer has signed, and that passes the check.

    Raises: BadTokenError, which was told; SignInUnavailableError.
    """
    name = "unknown"
    try:
        header = header_of(token)
        issuer = issuers.get(header.issuer)
        if issuer is None:
            raise BadTokenError("it is of no issuer in the file")
        terms, name = issuer.terms, issuer.terms.name
        if header.algorithm not in terms.algorithms:
            raise BadTokenError("its algorithm is not one of this issuer's `algorithms`")
        key = await issuer.key_for(header)
        if key is None:
            raise BadTokenError("the issuer publishes no key that fits it")
        claims = verified(token, header.algorithm, key)
        return Verified(claims, terms, *check(claims, terms, header.typ))
    except BadTokenError as error:
        refused(name, str(error))
        raise
    except IssuerError:
        raise unavailable(name) from None


def unavailable(name: str) -> SignInUnavailableError:
    """What users are told while the issuer can't be asked."""
    return SignInUnavailableError(
        f"sign-in by {name} does not work now, because it does not answer: try again in a minute; "
        "if it lasts, tell the operator of this Paddock, whose log says why",
        retry_after=30.0,
    )
