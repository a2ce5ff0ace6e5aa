"""Sign-in by an issuer in this process: on record, and ended in all of its ways."""

import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientPayloadError, ClientResponse, ServerDisconnectedError

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.ground.events import EventDraft
from orchestrator.operate.exports.ocsf import OcsfSource, ocsf_event
from orchestrator.rules.access.keys import digest
from orchestrator.settings.settings import Settings
from tests.api.conftest import Api
from tests.api.test_live_terminals import viewer
from tests.support.small_issuer import SmallIssuer, small_issuer
from tests.support.until import until

EVENT = "http://schemas.openid.net/event/backchannel-logout"
SOURCE = OcsfSource("i", "1")
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest_asyncio.fixture
async def issuer() -> AsyncIterator[SmallIssuer]:
    async with small_issuer() as issuer:
        yield issuer


@pytest.fixture
def settings(settings: Settings, issuer: SmallIssuer, state_dir: Path) -> Settings:
    file = state_dir / "oidc.toml"
    issuer.write(file, "backchannel_logout = true\n")
    return settings.model_copy(update={"oidc_file": file})


async def events(api: Api, operation: str) -> list[dict[str, Any]]:
    """Those of the instance's own chain, the newest first."""
    path = f"/api/audit?operation={operation}&limit=1000"
    found: list[dict[str, Any]] = (await api.json("GET", path))["items"]
    return found


async def status(api: Api, token: str, path: str = "/api/sessions") -> int:
    return (await api.call("GET", path, key=token)).status


async def cut(stream: ClientResponse) -> None:
    """Returns when the server has cut it off."""
    with pytest.raises((ClientPayloadError, ServerDisconnectedError)):
        await stream.content.read()


def logout_token(issuer: SmallIssuer, user: str, **changes: Any) -> str:
    now = int(time.time())
    header = changes.pop("header", {"typ": "logout+jwt"})
    claims = {
        **{"aud": "paddock", "iat": now, "exp": now + 120, "jti": uuid.uuid4().hex},
        **{"events": {EVENT: {}}, "groups": None, **changes},
    }
    return issuer.token(user, header=header, **claims)


async def log_out(api: Api, token: str, expected: int = 204) -> dict[str, Any]:
    answer = await api.call(
        *("POST", "/api/sign-in/logout"), key=None, data=f"logout_token={token}", headers=FORM
    )
    assert answer.status == expected, await answer.text()
    found: dict[str, Any] = {} if expected == 204 else await answer.json()
    return found


async def test_who_leaves_loses_streams_terminals_and_handles(
    api: Api, issuer: SmallIssuer
) -> None:
    """Each of the three by effect, at the moment of the revocation."""
    token = issuer.token("alice.engineers")
    made = await api.session(id="web", key=token, permission_level="high")
    events_of = {"Accept": "text/event-stream"}
    own = await api.call("GET", "/api/sessions/web/events", key=token, headers=events_of)
    given = await api.call("GET", "/api/sessions/web/events", key=made["handle"])
    assert (own.status, given.status) == (200, 200)
    async with viewer(api, "web", key=token) as one:
        await one.until("$ ")
        answer = await api.call("DELETE", "/api/users/alice.engineers@corp")
        assert answer.status == 204
        await one.end()
    await cut(own)
    await cut(given)
    await until(lambda: not api.plane.terminals.all_live)
    shown = await api.json("GET", f"/api/sessions/web/ptys/{one.terminal['id']}")
    assert shown["reason"] == "key_revoked"
    assert [await status(api, each, "/api/sessions/web") for each in (token, made["handle"])] == [
        *(401, 401)
    ]
    # Whoever signs in again has the session, and the handle stays refused.
    again = issuer.token("alice.engineers", iat=int(time.time()) + 2)
    assert await status(api, again, "/api/sessions/web") == 200
    assert await status(api, made["handle"], "/api/sessions/web") == 401


async def test_who_signs_out_at_the_issuer_loses_tokens_and_keeps_handles(
    api: Api, issuer: SmallIssuer
) -> None:
    token = issuer.token("bob.engineers")
    made = await api.session(id="web", key=token, permission_level="high")
    stream = await api.call("GET", "/api/sessions/web/events", key=token)
    async with viewer(api, "web", key=token) as one:
        await one.until("$ ")
        await log_out(api, logout_token(issuer, "bob.engineers"))
        await one.end()
    await cut(stream)
    assert await status(api, token) == 401
    assert await status(api, made["handle"], "/api/sessions/web") == 200
    (event,) = await events(api, "user.sign_out")
    assert (event["actor"], event["args"]["by"]) == ("bob.engineers@corp", "issuer")
    found = ocsf_event(event | {"agent": None}, "system", SOURCE)
    assert (found["class_uid"], found["activity_name"]) == (3002, "Logoff")
    later = issuer.token("bob.engineers", iat=int(time.time()) + 2)
    assert await status(api, later) == 200


async def test_a_logout_token_is_taken_once_and_a_wrong_one_never(
    api: Api, issuer: SmallIssuer
) -> None:
    token = issuer.token("carl.engineers")
    assert await status(api, token) == 200
    now = int(time.time())
    for changes in (
        {"aud": "another-client"},
        {"events": None},
        {"events": {EVENT: "yes"}},
        {"nonce": "abc"},
        {"jti": None},
        {"iss": "https://evil.test"},
        {"exp": now - 100, "iat": now - 200},
        {"iat": now - 800, "exp": now + 100},
        {"header": {"typ": "at+jwt"}},
        {"header": {"kid": "two", "typ": "logout+jwt"}},
    ):
        found = await log_out(api, logout_token(issuer, "carl.engineers", **changes), 400)
        assert found["field"] == "logout_token"
    for bad in ("", "logout_token=a&logout_token=b", "x=1"):
        answer = await api.call("POST", "/api/sign-in/logout", key=None, data=bad, headers=FORM)
        assert answer.status == 400
    long = await api.call("POST", "/api/sign-in/logout", key=None, data="a" * 70_000, headers=FORM)
    assert long.status == 413
    assert await status(api, token) == 200
    good = logout_token(issuer, "carl.engineers")
    assert await status(api, good) == 401  # it is no credential
    await log_out(api, good)
    assert await status(api, token) == 401
    await log_out(api, good, 400)
    assert len(await events(api, "user.sign_out")) == 1


async def test_sign_ins_are_on_record_once_and_before_they_count(
    api: Api, issuer: SmallIssuer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = issuer.token("dora.readers")
    assert await status(api, first) == 200
    assert await status(api, issuer.token("dora.readers", jti="another")) == 200
    (event,) = await events(api, "user.sign_in")
    assert (event["actor"], event["decision"]) == ("dora.readers@corp", "allow")
    assert (event["args"]["name"], event["args"]["role"]) == ("dora.readers@corp", "viewer")
    found = ocsf_event(event | {"agent": None}, "system", SOURCE)
    assert (found["class_uid"], found["activity_name"], found["status"]) == (
        *(3002, "Logon"),
        "Success",
    )
    recorder = api.plane.user_ending.recorder

    async def fails(draft: EventDraft, effect: object = None) -> None:
        raise AuditUnavailableError("the disk is full")

    unrecorded = issuer.token("emma.engineers")
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "record_system", fails)
        await api.problem(503, "audit_unavailable", "GET", "/api/sessions", key=unrecorded)
    assert not api.plane.sign_in.users.knows(digest(unrecorded))
    assert await status(api, unrecorded) == 200


async def test_refusals_are_counted_and_say_why_to_the_operator_alone(
    api: Api, issuer: SmallIssuer
) -> None:
    """A storm of refused tokens has few events, which say how many they were."""
    said = set()
    for number in range(60):
        token = issuer.token("eve.engineers", aud="https://other.test", jti=str(number))
        found = await api.problem(401, "unauthorized", "GET", "/api/sessions", key=token)
        said.add(found["detail"])
    assert said == {"the token is not valid here, or has expired: sign in again"}
    await api.problem(403, "permission_denied", "GET", "/api/sessions", key=issuer.token("nobody"))
    sign_ins = api.plane.sign_in.events
    await sign_ins.close()  # type: ignore[attr-defined]
    recorded = await events(api, "user.sign_in")
    assert len(recorded) <= 14
    refused = [each for each in recorded if each["rule"] == "sign-in-refused"]
    assert {each["error"] for each in refused} == {"its aud does not name https://paddock.test"}
    assert sum(each["args"].get("repeats", 1) for each in refused) == 60
    (other,) = [each for each in recorded if each["rule"] == "no-sign-in-rule"]
    assert (other["decision"], other["actor"]) == ("deny", "nobody")
    assert "eve.engineers" not in str(recorded)
    mapped = ocsf_event(refused[0] | {"agent": None}, "system", SOURCE)
    assert (mapped["activity_name"], mapped["status"]) == ("Logon", "Failure")


async def test_callers_are_told_who_they_are(api: Api, issuer: SmallIssuer) -> None:
    found = await api.json("GET", "/api/caller", key=issuer.token("fay.readers"))
    expires = found.pop("expires_at")
    assert found == {
        **{"name": "fay.readers@corp", "role": "viewer", "owner": None},
        **{"scopes": ["sessions:read"], "max_level": None},
    }
    assert expires is not None
    made = await api.session(id="web", key=issuer.token("gus.engineers"))
    await api.problem(403, "permission_denied", "GET", "/api/caller", key=made["handle"])
    # The scopes of a rule hold, also after a restart, when what was stored says who the user is.
    found = await api.problem(
        403, "permission_denied", "GET", "/api/audit", key=issuer.token("fay.readers")
    )
    assert found["scope"] == "events:read"


async def test_users_are_listed_in_pages(api: Api, issuer: SmallIssuer) -> None:
    names = [f"u{number}.engineers" for number in range(5)]
    for name in reversed(names):
        assert await status(api, issuer.token(name)) == 200
    found: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = await api.json("GET", f"/api/users?limit=2&cursor={cursor}")
        found += [each["name"] for each in page["items"]]
        cursor = page["next"]
    assert found == [f"{name}@corp" for name in names]
