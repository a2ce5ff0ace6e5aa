"""Redeems codes and refresh tokens with an issuer, for pages that may call nobody but us.

A page makes PKCE's verifier, `state` and `nonce` itself, and keeps them in its tab, so that nothing
is held here while somebody signs in, and a code from elsewhere is worth nothing.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from orchestrator.ground.errors import UnauthorizedError, ValidationError
from orchestrator.rules.oidc.issuer_fetch import IssuerError, IssuerHttp, IssuerRefusal
from orchestrator.rules.oidc.issuer_keys import IssuerKeys
from orchestrator.rules.oidc.token_claims import (
    BadTokenError,
    check_id_token,
    check_times,
    header_of,
    verified,
)
from orchestrator.rules.oidc.verification import Refused, unavailable

_AGAIN = "the sign-in can't be completed: begin again"

log = logging.getLogger(__name__)


class Redeemed(NamedTuple):
    """The token for this API, not verified yet, and the one to get the next."""

    token: str
    refresh_token: str | None


async def redeem(
    issuer: IssuerKeys, form: Mapping[str, str], nonce: str | None, now: float, refused: Refused
) -> Redeemed:
    """What the issuer gives for the form, to which what concerns the client is added.

    `nonce`: that of the ID token. Raises: UnauthorizedError, ValidationError,
    SignInUnavailableError.
    """
    terms = issuer.terms
    sent = {**form, "client_id": terms.client_id}
    if form["grant_type"] == "authorization_code":
        if terms.redirect_uri is None:
            raise ValidationError("this issuer has no redirect_uri in the file", field="issuer")
        sent["redirect_uri"] = terms.redirect_uri
    if terms.resource is not None:
        sent["resource"] = terms.resource
    try:
        published = await issuer.published()
        if published.token is None:
            raise IssuerError("it publishes no token_endpoint")
        answer = await IssuerHttp().post(published.token, sent)
        if nonce is not None or "id_token" in answer:
            await _check_id_token(issuer, answer, nonce, now)
        return _redeemed(answer, "access_token" if terms.uses_access_tokens else "id_token")
    except IssuerRefusal as error:
        refused(terms.name, f"the issuer refuses it: {error.code}")
        raise UnauthorizedError(_AGAIN) from None
    except BadTokenError as error:
        refused(terms.name, str(error))
        raise UnauthorizedError(_AGAIN) from None
    except IssuerError as error:
        log.error("the issuer %s can't be used: %s", terms.name, error)
        raise unavailable(terms.name) from None


async def _check_id_token(
    issuer: IssuerKeys, answer: Mapping[str, Any], nonce: str | None, now: float
) -> None:
    token = answer.get("id_token")
    if not isinstance(token, str):
        raise BadTokenError("there is no ID token, so that its nonce can't be compared")
    header = header_of(token)
    if header.algorithm not in issuer.terms.algorithms:
        raise BadTokenError("the ID token's algorithm is not one of this issuer's `algorithms`")
    key = await issuer.key_for(header)
    if key is None:
        raise BadTokenError("the issuer publishes no key that fits the ID token")
    claims = verified(token, header.algorithm, key)
    check_id_token(claims, issuer.terms, nonce)
    check_times(claims, issuer.terms, now)


def _redeemed(answer: Mapping[str, Any], name: str) -> Redeemed:
    token, refresh = answer.get(name), answer.get("refresh_token")
    if not isinstance(token, str):
        raise IssuerError(f"its answer has no {name}")
    return Redeemed(token, refresh if isinstance(refresh, str) else None)
