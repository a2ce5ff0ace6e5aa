"""What the operator says of an issuer: who it is, how to sign in there, and who its users are."""

import hashlib
import ipaddress
import re
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from orchestrator.rules.access.key_entries import parse_key
from orchestrator.rules.access.keys import USER_MARK, Principal

# Only signatures that anyone can check, and only the issuer can make.
_Algorithm = Literal[
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "Ed25519"
]
ALGORITHMS: tuple[str, ...] = get_args(_Algorithm)
_NAME = r"[a-z0-9][a-z0-9-]{0,31}"
# Values that can be part of a name as they are. All others are named by their digest, which begins
# with a character that no value does.
_PLAIN_USER = re.compile(r"[a-z0-9][a-z0-9._+@-]{0,63}")
_DIGEST_LENGTH = 32
_MOST_VALUE = 1024


def check_issuer_url(url: str) -> str:
    """Returns it. Raises: ValueError unless it is https, or http to this machine."""
    parts = urlsplit(url)
    if (
        parts.scheme not in ("https", "http")
        or not parts.hostname
        or parts.username is not None
        or parts.fragment
    ):
        raise ValueError("must look like https://sso.example.org")
    if parts.scheme == "http" and not _is_loopback(parts.hostname):
        raise ValueError("must begin with https://, or others could sign tokens")
    return url


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


_Url = Annotated[str, Field(max_length=2048), AfterValidator(check_issuer_url)]
_Word = Annotated[str, Field(min_length=1, max_length=256)]
_Value = Annotated[str, Field(max_length=_MOST_VALUE)] | bool | int


class _Terms(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class ClaimRule(BaseModel):
    """One `[[oidc.rules]]` table: whoever has these claims is this principal.

    The other members are those of an entry of the keys file.
    """

    model_config = ConfigDict(extra="allow", frozen=True, hide_input_in_errors=True)

    when: Annotated[dict[_Word, _Value], Field(min_length=1, max_length=16)]

    @model_validator(mode="after")
    def _check_entry(self) -> Self:
        self.principal("nobody")
        return self

    def principal(self, name: str) -> Principal:
        """The user with that name. Raises: ValueError that names the member."""
        members = dict(self.__pydantic_extra__ or {})
        for own in ("name", "sha256", "expires_at", "old_sha256", "old_until"):
            if own in members:
                raise ValueError(f"{own}: no such field: it comes from the token")
        found = parse_key({**members, "name": "user"})
        return Principal(
            name,
            found.role,
            owner=found.owner,
            limits=found.limits,
            bounds=found.bounds,
            scopes=found.scopes,
        )

    def matches(self, claims: dict[str, Any]) -> bool:
        """Whether the token has each of the claims, as a value or in a list."""
        return all(_has(claims.get(name), wanted) for name, wanted in self.when.items())


def _has(found: Any, wanted: str | bool | int) -> bool:
    if isinstance(found, list):
        return any(_has(each, wanted) for each in found if not isinstance(each, list))
    return type(found) is type(wanted) and bool(found == wanted)


class IssuerTerms(_Terms):
    """One `[[oidc]]` table."""

    name: Annotated[str, Field(pattern=f"^{_NAME}$")]
    label: Annotated[str, Field(max_length=64)] = ""
    issuer: _Url
    # Whom tokens are for: this instance.
    audience: _Word
    client_id: _Word
    # `access`: access tokens in the form of RFC 9068; `id`: ID tokens.
    token: Literal["access", "id"] = "access"  # noqa: S105
    # The `typ` of the header; issuers before RFC 9068 say JWT.
    typ: Annotated[list[_Word], Field(min_length=1, max_length=4)] | None = None
    algorithms: Annotated[list[_Algorithm], Field(min_length=1)] = [
        *("RS256", "PS256", "ES256", "Ed25519")
    ]
    user: _Word = "sub"
    scopes: Annotated[list[_Word], Field(max_length=32)] = ["openid"]
    # RFC 8707: for which resource the issuer makes access tokens.
    resource: _Url | None = None
    # Where the console is, exactly as it is registered with the issuer.
    redirect_uri: _Url | None = None
    leeway_seconds: Annotated[int, Field(ge=0, le=300)] = 60
    # No token is accepted for longer after it was issued.
    max_token_seconds: Annotated[int, Field(ge=60, le=7 * 86_400)] = 86_400
    # How long handles of a user's sessions outlast the last token.
    handles_hold_seconds: Annotated[int, Field(ge=0, le=30 * 86_400)] = 43_200
    # The issuer tells us when a user has signed out there.
    backchannel_logout: bool = False
    rules: Annotated[list[ClaimRule], Field(max_length=256)] = []

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.uses_access_tokens and self.audience == self.client_id:
            raise ValueError(
                'audience is the client_id, which is whom ID tokens are for: set token = "id", or '
                "the audience of access tokens"
            )
        if self.backchannel_logout and self.user != "sub":
            raise ValueError('backchannel_logout needs user = "sub", all that logout tokens name')
        return self

    @property
    def uses_access_tokens(self) -> bool:
        """Whether its access tokens are the credentials, and not its ID tokens."""
        return self.token != "id"  # noqa: S105

    @property
    def types(self) -> frozenset[str]:
        """What may be in the header's `typ`, in lower case; none at all is the empty text."""
        if self.typ is not None:
            return frozenset(each.lower() for each in self.typ)
        return frozenset(
            {"at+jwt", "application/at+jwt"} if self.uses_access_tokens else {"jwt", ""}
        )

    def user_name(self, claims: dict[str, Any]) -> str | None:
        """The name of the user here; None if the token does not say who it is.

        Different values never have the same name, no key has such a name, and the issuer's name is
        behind the last mark.
        """
        value = claims.get(self.user)
        if not isinstance(value, str) or not 0 < len(value) <= _MOST_VALUE:
            return None
        if self.user == "email" and claims.get("email_verified") is not True:
            return None
        if _PLAIN_USER.fullmatch(value) is None:
            value = "_" + hashlib.sha256(value.encode()).hexdigest()[:_DIGEST_LENGTH]
        return f"{value}{USER_MARK}{self.name}"

    def principal(self, name: str, claims: dict[str, Any]) -> Principal | None:
        """Whom the first rule that matches makes of the user; None if none does."""
        for rule in self.rules:
            if rule.matches(claims):
                return rule.principal(name)
        return None
