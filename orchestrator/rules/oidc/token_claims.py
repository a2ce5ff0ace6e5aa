"""Decides whether a token is one of an issuer's, for this instance, and still valid. Pure.

Only this module and `issuer_keys` use joserfc, which is in an extra of its own.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

from orchestrator.ground.strict_json import JsonError, read
from orchestrator.rules.oidc.issuer_terms import ALGORITHMS, IssuerTerms

PublicKey = RSAKey | ECKey | OKPKey


class BadTokenError(Exception):
    """The token is not accepted. The message is for the operator, and has nothing of the token."""


class TokenHeader(NamedTuple):
    """What a token says about itself before anything is checked."""

    algorithm: str
    kid: str | None
    typ: str
    issuer: str


def header_of(token: str) -> TokenHeader:
    """Raises: BadTokenError."""
    try:
        found = jws.extract_compact(token.encode("ascii"))
        header = found.headers()
        issuer = _members(found.payload).get("iss")
    except (JoseError, ValueError, UnicodeError, TypeError):
        raise BadTokenError("it can't be read") from None
    algorithm, kid, typ = header.get("alg"), header.get("kid"), header.get("typ", "")
    if algorithm not in ALGORITHMS:
        raise BadTokenError("its algorithm is none that is accepted")
    if not isinstance(typ, str) or not isinstance(kid, str | None) or not isinstance(issuer, str):
        raise BadTokenError("its header can't be read")
    return TokenHeader(algorithm, kid, typ.lower(), issuer)


def verified(token: str, algorithm: str, key: PublicKey) -> dict[str, Any]:
    """The claims of a token with a valid signature. Raises: BadTokenError."""
    try:
        found = jws.deserialize_compact(token, key, algorithms=[algorithm])
        return _members(found.payload)
    except (JoseError, ValueError, TypeError) as error:
        raise BadTokenError(f"its signature is not valid ({type(error).__name__})") from None


def check_times(claims: Mapping[str, Any], terms: IssuerTerms, now: float) -> tuple[float, float]:
    """When it was issued and when it expires, in seconds since 1970. Raises: BadTokenError."""
    leeway = terms.leeway_seconds
    issued, expires = _seconds(claims, "iat"), _seconds(claims, "exp")
    if issued > now + leeway:
        raise BadTokenError("its iat is in the future: compare the clocks")
    if "nbf" in claims and _seconds(claims, "nbf") > now + leeway:
        raise BadTokenError("its nbf is in the future: compare the clocks")
    until = min(expires + leeway, issued + terms.max_token_seconds)
    if until <= now:
        raise BadTokenError("it has expired")
    return issued, until


def check_recipient(claims: Mapping[str, Any], terms: IssuerTerms, typ: str) -> None:
    """Raises: BadTokenError unless it is for this instance, and of the kind that is accepted."""
    if typ not in terms.types:
        raise BadTokenError(f"its typ is not one of {', '.join(sorted(terms.types))}")
    if claims.get("iss") != terms.issuer:
        raise BadTokenError("it is of another issuer")
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if terms.audience not in named:
        raise BadTokenError(f"its aud does not name {terms.audience}")
    if "events" in claims:
        raise BadTokenError("it is a notice of the issuer, and no user's")


def check_id_token(claims: Mapping[str, Any], terms: IssuerTerms, nonce: str | None) -> None:
    """Raises: BadTokenError unless the ID token is for our client, and of this sign-in."""
    audience = claims.get("aud")
    named = audience if isinstance(audience, list) else [audience]
    if claims.get("iss") != terms.issuer or terms.client_id not in named:
        raise BadTokenError("the ID token is not for this client")
    if len(named) > 1 and claims.get("azp") != terms.client_id:
        raise BadTokenError("the ID token was made for another client")
    if nonce is not None and claims.get("nonce") != nonce:
        raise BadTokenError("the ID token has not the nonce of this sign-in")


def _seconds(claims: Mapping[str, Any], name: str) -> float:
    found = claims.get(name)
    if isinstance(found, bool) or not isinstance(found, int | float) or not 0 < found < 2**40:
        raise BadTokenError(f"it has no {name}")
    return float(found)


def _members(payload: bytes) -> dict[str, Any]:
    try:
        found = read(payload, "the token")
    except (JsonError, json.JSONDecodeError):
        raise ValueError("not JSON") from None
    if not isinstance(found, dict):
        raise TypeError("no object")
    return found
