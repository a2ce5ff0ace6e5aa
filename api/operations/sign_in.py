"""Sign-in by OpenID Connect, and the users who have signed in."""

from datetime import UTC, datetime

from api.shape.access import Access
from api.shape.answers import Removed, Upload
from api.shape.context import Context
from api.shape.operation import operation
from orchestrator.ground.errors import TooLargeError
from orchestrator.operate.users.ending import UserEnding
from orchestrator.rules.access.users import SignedIn
from orchestrator.rules.oidc.logout_form import MOST_FORM_BYTES, logout_token_in
from orchestrator.rules.oidc.sign_in import SignIn, SignInPlace
from orchestrator.settings.settings import Settings
from paddock.contract.sign_in import (
    Caller,
    SignInBody,
    SignInOffer,
    SignInOffers,
    SignInTokens,
    User,
    UserList,
    UserListQuery,
)

_TAG = "Sign-in"


@operation(
    "GET",
    "/api/sign-in",
    Access.OPEN,
    tag=_TAG,
    summary="List the issuers by which users sign in",
    answers="The issuers, and where to go.",
)
async def list_issuers(context: Context, sign_in: SignIn) -> SignInOffers:
    """The issuers in the operator's file; none if only keys are accepted."""
    return SignInOffers(items=[_offer(each) for each in await sign_in.offers()])


@operation(
    "POST",
    "/api/sign-in/token",
    Access.OPEN,
    tag=_TAG,
    summary="Redeem a code or a refresh token",
    answers="The token, which is a credential for this API.",
    errors=(
        *("not_found", "unauthorized", "permission_denied", "rate_limited"),
        "sign_in_unavailable",
    ),
    examples={"refresh": {"issuer": "corp", "refresh_token": "8Yl2pWqk4Tn0"}},
)
async def redeem_sign_in(context: Context, sign_in: SignIn, body: SignInBody) -> SignInTokens:
    """Passes it on to the issuer, with what concerns the client, and verifies what comes back.

    The console does this for a page, which may call no other server. Programs can ask the issuer.
    """
    if body.refresh_token is not None:
        form = {"grant_type": "refresh_token", "refresh_token": body.refresh_token}
    else:
        form = {
            "grant_type": "authorization_code",
            "code": body.code or "",
            "code_verifier": body.code_verifier or "",
        }
    found = await sign_in.redeem(body.issuer, form, body.nonce)
    return SignInTokens.model_validate(
        {
            "token": found.token,
            "refresh_token": found.refresh_token,
            "expires_in": found.expires_in,
            "name": found.user.name,
            "role": str(found.user.role),
        }
    )


@operation(
    "POST",
    "/api/sign-in/logout",
    Access.OPEN,
    tag=_TAG,
    summary="End the sign-ins of a user who has signed out at the issuer",
    answers="Tokens that were issued before are not valid any more.",
    errors=(
        *("not_found", "rate_limited", "too_large", "sign_in_unavailable"),
        *("audit_unavailable", "cluster_unavailable"),
    ),
    upload_as=(
        "application/x-www-form-urlencoded",
        "`logout_token`, a logout token of the issuer, and nothing else.",
    ),
)
async def end_sign_in(context: Context, user_ending: UserEnding, upload: Upload) -> Removed:
    """For issuers (OpenID Connect Back-Channel Logout 1.0): streams and terminals end at once.

    Handles of the user's sessions hold, as after any last token. Each token is taken once.
    """
    token = logout_token_in(await _short(upload))
    await context.work.complete(user_ending.sign_out(token))
    return Removed()


@operation(
    "GET",
    "/api/caller",
    Access.SELF,
    tag=_TAG,
    summary="Show who calls",
    answers="The key or user of the credential that was sent.",
    errors=("sign_in_unavailable",),
)
async def show_caller(context: Context) -> Caller:
    """What this instance knows the credential as, and what it may do."""
    found = context.principal
    return Caller.model_validate(
        {
            "name": found.name,
            "role": str(found.role),
            "owner": found.owner,
            "scopes": None if found.scopes is None else sorted(found.scopes),
            "max_level": found.bounds.max_level,
            "expires_at": found.expires_at,
        }
    )


@operation(
    "GET",
    "/api/users",
    Access.ADMIN,
    tag=_TAG,
    summary="List the users who have signed in",
    answers="The users by name.",
)
async def list_users(
    context: Context, sign_in: SignIn, settings: Settings, query: UserListQuery
) -> UserList:
    """The users whom this instance has seen, at most 16,384; of a cluster, this node's."""
    now = datetime.now(UTC)
    found = sign_in.users.page(query.cursor or "", query.limit)
    more = len(found) == query.limit
    return UserList(
        items=[_user(each, now, settings.node) for each in found],
        next=found[-1].principal.name if more else None,
        missing=[],
    )


@operation(
    "DELETE",
    "/api/users/{name}",
    Access.ADMIN,
    tag=_TAG,
    summary="End a user's sign-ins",
    answers="Nothing that the user has from before now is valid any more.",
    errors=("cluster_unavailable",),
)
async def revoke_user(context: Context, user_ending: UserEnding, name: str) -> Removed:
    """Refuses tokens that were issued before now, and handles of sessions from before now.

    Streams and terminals end at once. `@corp` means all users of the issuer corp. The user may sign
    in again: that is for the issuer, or a rule, to refuse.
    """
    await context.work.complete(user_ending.revoke(context.principal.name, name))
    return Removed()


async def _short(upload: Upload) -> bytes:
    """The body. Raises: TooLargeError before more than that is kept."""
    found = bytearray()
    async for piece in upload:
        found += piece
        if len(found) > MOST_FORM_BYTES:
            raise TooLargeError(f"the body is over the limit, {MOST_FORM_BYTES} bytes")
    return bytes(found)


def _offer(offer: SignInPlace) -> SignInOffer:
    terms = offer.terms
    return SignInOffer(
        name=terms.name,
        label=terms.label or terms.name,
        issuer=terms.issuer,
        client_id=terms.client_id,
        scope=" ".join(terms.scopes),
        resource=terms.resource,
        redirect_uri=terms.redirect_uri,
        authorization_endpoint=offer.authorization,
        device_authorization_endpoint=offer.device,
        token_endpoint=offer.token,
        token=terms.token,
        available=not offer.problem,
    )


def _user(user: SignedIn, now: datetime, node: str | None) -> User:
    return User.model_validate(
        {
            "name": user.principal.name,
            "role": str(user.principal.role),
            "issued_at": user.issued_at,
            "until": user.until,
            "handles_until": user.until + user.holds,
            "signed_in": user.until > now,
            "node": node,
        }
    )
