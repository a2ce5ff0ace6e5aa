"""Sign-in by OpenID Connect: where, by what, and who has signed in."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paddock.contract.base import WORDS, Model, Time, example
from paddock.contract.fields import PageSize
from paddock.contract.keys import Role
from paddock.contract.requests import Body, Query

_OFFER: dict[str, Any] = {
    "name": "corp",
    "label": "Example Corporation",
    "issuer": "https://sso.example.org",
    "client_id": "paddock",
    "scope": "openid groups",
    "resource": None,
    "redirect_uri": "https://paddock.example.org/",
    "authorization_endpoint": "https://sso.example.org/authorize",
    "device_authorization_endpoint": "https://sso.example.org/device",
    "token_endpoint": "https://sso.example.org/token",
    "token": "access",
    "available": True,
}
_USER: dict[str, Any] = {
    "name": "alice@corp",
    "role": "operator",
    "issued_at": "2030-01-31T08:00:00.000000Z",
    "until": "2030-01-31T09:00:00.000000Z",
    "handles_until": "2030-01-31T21:00:00.000000Z",
    "signed_in": True,
    "node": None,
}


class SignInOffer(Model):
    """One issuer by which users sign in. Without `available`, it does not answer now."""

    model_config = example(_OFFER)

    name: str
    label: str = Field(description="What people call it.")
    issuer: str
    client_id: str
    scope: str
    resource: str | None = Field(description="What tokens are asked for (RFC 8707).")
    redirect_uri: str | None = Field(description="Where the console is; null: not by the console.")
    authorization_endpoint: str | None
    device_authorization_endpoint: str | None
    token_endpoint: str | None
    token: Literal["access", "id"] = Field(description="Which of its tokens is the credential.")
    available: bool


class SignInOffers(Model):
    """All of them; none if only keys are accepted."""

    model_config = example({"items": [_OFFER]})

    items: list[SignInOffer]


_Code = Annotated[str, Field(min_length=1, max_length=4096)]


class SignInBody(Body):
    """A code of an issuer with what the page made for it, or a refresh token."""

    issuer: Annotated[str, Field(min_length=1, max_length=32)] = Field(
        description="The issuer's `name`."
    )
    code: _Code | None = None
    code_verifier: (
        Annotated[str, Field(pattern="^[A-Za-z0-9._~-]{43,128}$", max_length=128)] | None
    ) = None
    nonce: Annotated[str, Field(min_length=16, max_length=128)] | None = None
    refresh_token: _Code | None = None

    @model_validator(mode="after")
    def _check_grant(self) -> Self:
        by_code = (self.code, self.code_verifier, self.nonce)
        if self.refresh_token is not None:
            if any(each is not None for each in by_code):
                raise ValueError("refresh_token goes without code, code_verifier and nonce")
        elif any(each is None for each in by_code):
            raise ValueError("needs code, code_verifier and nonce, or refresh_token")
        return self


class SignInTokens(Model):
    """A bearer token for this API."""

    model_config = example(
        {
            "token": "eyJhbGciOiJSUzI1NiIsInR5cCI6ImF0K2p3dCJ9.e30.c2ln",
            "refresh_token": "8Yl2pWqk4Tn0",
            "expires_in": 3600.0,
            "name": "alice@corp",
            "role": "operator",
        }
    )

    token: str
    refresh_token: str | None
    expires_in: float = Field(description="Seconds.")
    name: str
    role: Role


class Caller(Model):
    """The key or user whose credential was sent."""

    model_config = example(
        {
            "name": "alice@corp",
            "role": "operator",
            "owner": None,
            "scopes": None,
            "max_level": "medium",
            "expires_at": "2030-01-31T09:00:00.000000Z",
        }
    )

    name: str
    role: Annotated[Role, WORDS]
    owner: str | None = Field(
        description="Whose sessions a viewer reads; null for a viewer: all sessions."
    )
    scopes: list[str] | None = Field(description="Null: everything that the role may do.")
    max_level: str | None = Field(description="The highest level of its sessions.")
    expires_at: Time | None = Field(description="When the credential expires.")


class User(Model):
    """A user who has signed in here. Handles of their sessions hold until `handles_until`."""

    model_config = example(_USER)

    name: str
    role: Role
    issued_at: Time = Field(description="When the newest token was issued.")
    until: Time
    handles_until: Time
    signed_in: bool
    node: str | None = Field(description="The node of a cluster that says so.")


class UserListQuery(Query):
    """Which page of the users."""

    cursor: Annotated[str, Field(max_length=128)] | None = None
    limit: PageSize = 100


class UserList(Model):
    """A page of the users by name. A gateway has a user once for each node that knows them."""

    model_config = example({"items": [_USER], "next": None, "missing": []})

    items: list[User]
    next: str | None = Field(description="The `cursor` of the next page; null: there is none.")
    missing: list[str] = Field(description="Nodes of a cluster that did not answer.")
