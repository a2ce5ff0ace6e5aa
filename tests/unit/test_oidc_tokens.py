"""Tokens of issuers: which are accepted, and whom they make of their users."""

import base64
import json
from collections.abc import Mapping
from typing import Any

import pytest
from joserfc import jws
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey

from orchestrator.ground.errors import SignInUnavailableError, UnauthorizedError
from orchestrator.rules.access.keys import Role
from orchestrator.rules.oidc.issuer_fetch import IssuerError
from orchestrator.rules.oidc.issuer_keys import (
    FRESH_SECONDS,
    PAUSE_SECONDS,
    VALID_SECONDS,
    IssuerKeys,
)
from orchestrator.rules.oidc.issuer_terms import IssuerTerms
from orchestrator.rules.oidc.verification import verify
from tests.support.manual_clock import ManualClock

NOW = 1_900_000_000.0
ISSUER = "https://sso.example.org"
SIGNER = RSAKey.generate_key(2048)
CURVE = ECKey.generate_key("P-256")
EDWARDS = OKPKey.generate_key("Ed25519")
OTHER = RSAKey.generate_key(2048)
CLAIMS: dict[str, Any] = {
    "iss": ISSUER,
    "aud": "https://paddock.example.org",
    "sub": "alice",
    "groups": ["engineers"],
    "iat": int(NOW) - 10,
    "exp": int(NOW) + 300,
}
HEADER = {"alg": "RS256", "kid": "one", "typ": "at+jwt"}


def terms(**members: Any) -> IssuerTerms:
    given = {
        "name": "corp",
        "issuer": ISSUER,
        "audience": "https://paddock.example.org",
        "client_id": "paddock",
        "rules": [{"when": {"groups": "engineers"}, "role": "operator"}],
    }
    return IssuerTerms.model_validate({**given, **members})


def public(key: Any, kid: str) -> dict[str, Any]:
    return {**key.as_dict(private=False), "kid": kid}


class Http:
    """An issuer's documents, counted."""

    def __init__(self, keys: list[dict[str, Any]]) -> None:
        self.keys = keys
        self.asked = 0
        self.dead = False

    async def get(self, url: str) -> dict[str, Any]:
        if self.dead:
            raise IssuerError("it is dead")
        if url.endswith("/jwks"):
            self.asked += 1
            return {"keys": self.keys}
        return {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/jwks"}


class Issuer:
    def __init__(self, **members: Any) -> None:
        self.clock = ManualClock()
        self.http = Http([public(SIGNER, "one"), public(CURVE, "two"), public(EDWARDS, "three")])
        self.keys = IssuerKeys(terms(**members), self.http, self.clock.now)  # type: ignore[arg-type]

    async def verify(self, token: str) -> Any:
        return await verify(token, {ISSUER: self.keys}, NOW, lambda *_: None)


def signed(key: Any = SIGNER, header: Mapping[str, Any] = {}, **claims: Any) -> str:
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    whole = {**HEADER, **header}
    return jws.serialize_compact(whole, json.dumps(given).encode(), key, algorithms=[whole["alg"]])


def unsigned(header: Mapping[str, Any], signature: str = "") -> str:
    parts = (json.dumps(part).encode() for part in ({**HEADER, **header}, CLAIMS))
    text = ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)
    return f"{text}.{signature}"


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [
        (SIGNER, "RS256", "one"),
        (SIGNER, "PS256", "one"),
        (CURVE, "ES256", "two"),
        (EDWARDS, "Ed25519", "three"),
    ],
)
async def test_tokens_that_the_issuer_has_signed_are_accepted(
    key: Any, algorithm: str, kid: str
) -> None:
    found = await Issuer().verify(signed(key, {"alg": algorithm, "kid": kid}))
    assert (found.claims["sub"], found.issued, found.until) == ("alice", NOW - 10, NOW + 360)


# The public key's text as the secret of a symmetric algorithm: key confusion.
CONFUSED = jws.serialize_compact(
    {**HEADER, "alg": "HS256"},
    json.dumps(CLAIMS).encode(),
    OctKey.import_key(base64.urlsafe_b64encode(SIGNER.as_pem(private=False)).decode().rstrip("=")),
    algorithms=["HS256"],
)
BAD = {
    "wrong audience": signed(aud="https://other.example.org"),
    "one of other audiences": signed(aud=["a", "b"]),
    "no audience": signed(aud=None),
    "other issuer": signed(iss="https://evil.example.org"),
    "issuer with a slash": signed(iss=f"{ISSUER}/"),
    "expired": signed(exp=int(NOW) - 61, iat=int(NOW) - 600),
    "no expiry": signed(exp=None),
    "no time of issue": signed(iat=None),
    "issued in the future": signed(iat=int(NOW) + 61),
    "not valid yet": signed(nbf=int(NOW) + 61),
    "expiry is a text": signed(exp="tomorrow"),
    "older than a day": signed(iat=int(NOW) - 86_401, exp=int(NOW) + 10**6),
    "ID token": signed(header={"typ": "JWT"}),
    "notice of a log-out": signed(events={"backchannel-logout": {}}),
    "signed by another": signed(OTHER),
    "key of another kind": signed(CURVE, {"alg": "ES256", "kid": "one"}),
    "algorithm that the issuer does not use": signed(header={"alg": "RS512"}),
    "none": unsigned({"alg": "none"}),
    "None": unsigned({"alg": "None"}),
    "no signature": unsigned({}),
    "key confusion": CONFUSED,
    "key in the header": signed(OTHER, {"jwk": public(OTHER, "one")}),
    "unknown extension": unsigned({"crit": ["x"], "x": 1}, "c2ln"),
    "changed": signed().replace(".", ".e", 1),
    "nothing": "eyJ..",
}


@pytest.mark.parametrize("token", BAD.values(), ids=BAD.keys())
async def test_all_others_are_refused_with_the_same_words(token: str) -> None:
    with pytest.raises(UnauthorizedError) as caught:
        await Issuer().verify(token)
    assert caught.value.detail == "the token is not valid here, or has expired: sign in again"


async def test_clocks_may_differ_by_the_leeway() -> None:
    issuer = Issuer()
    assert await issuer.verify(signed(exp=int(NOW) - 59))
    assert await issuer.verify(signed(iat=int(NOW) + 59, nbf=int(NOW) + 59))


async def test_unknown_keys_make_nobody_ask_the_issuer_often() -> None:
    issuer = Issuer()
    await issuer.verify(signed())
    for number in range(100):
        with pytest.raises(UnauthorizedError):
            await issuer.verify(signed(header={"kid": f"unknown-{number}"}))
    assert issuer.http.asked == 1
    issuer.http.keys.append(public(OTHER, "four"))
    issuer.clock.advance(PAUSE_SECONDS)
    assert await issuer.verify(signed(OTHER, {"kid": "four"}))
    assert issuer.http.asked == 2


async def test_a_withdrawn_key_is_refused_when_the_keys_are_read_again() -> None:
    issuer = Issuer()
    await issuer.verify(signed())
    issuer.http.keys = [public(OTHER, "one")]
    issuer.clock.advance(FRESH_SECONDS + 1)
    with pytest.raises(UnauthorizedError):
        await issuer.verify(signed())


async def test_a_dead_issuers_keys_are_believed_for_an_hour() -> None:
    issuer = Issuer()
    await issuer.verify(signed())
    issuer.http.dead = True
    issuer.clock.advance(VALID_SECONDS - 1)
    assert await issuer.verify(signed())
    issuer.clock.advance(PAUSE_SECONDS)
    with pytest.raises(SignInUnavailableError, match="corp does not work now"):
        await issuer.verify(signed())


async def test_id_tokens_are_accepted_where_the_file_says_so() -> None:
    issuer = Issuer(token="id", audience="paddock")
    assert await issuer.verify(signed(header={"typ": "JWT"}, aud="paddock"))
    with pytest.raises(UnauthorizedError):
        await issuer.verify(signed(aud="paddock"))


def test_rules_make_principals_of_users_and_others_are_nobody() -> None:
    found = terms(
        rules=[
            {"when": {"groups": "platform", "level": 3}, "role": "admin"},
            {
                "when": {"groups": "engineers"},
                "role": "operator",
                "max_sessions": 5,
                "max_level": "medium",
            },
        ]
    )
    principal = found.principal("alice@corp", CLAIMS)
    assert principal is not None
    assert (principal.role, principal.limits.max_sessions, principal.bounds.max_level) == (
        *(Role.OPERATOR, 5),
        "medium",
    )
    admin = found.principal("alice@corp", {"groups": ["platform"], "level": 3})
    assert admin is not None
    assert admin.role is Role.ADMIN
    others: tuple[dict[str, Any], ...] = (
        {},
        {"groups": "engineer"},
        {"groups": ["platform"], "level": True},
        {"groups": {"engineers": 1}},
    )
    for claims in others:
        assert found.principal("alice@corp", claims) is None


def test_users_of_an_issuer_have_names_that_no_key_and_no_other_user_has() -> None:
    values = [
        "alice",
        "Alice",
        "alice@corp",
        "admin",
        "a" * 65,
        "a/../b",
        "\u00e4",
        "_x",
        "a b",
        "",
    ]
    names = [terms().user_name({"sub": value}) for value in values]
    assert names[0] == "alice@corp"
    assert names[3] == "admin@corp"
    assert names[-1] is None
    known = [name for name in names if name is not None]
    assert len(set(known)) == len(known)
    assert all(name.endswith("@corp") and "/" not in name and len(name) <= 97 for name in known)
    hashed = known[1].removesuffix("@corp")
    assert terms().user_name({"sub": hashed}) != known[1]
    assert terms().user_name({"sub": 7}) is None
    by_mail = terms(user="email")
    assert by_mail.user_name({"email": "a@example.org"}) is None
    assert by_mail.user_name({"email": "a@example.org", "email_verified": True}) == (
        "a@example.org@corp"
    )
