"""API keys over the API: admins create and revoke them, on record and at once."""

import asyncio
import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from orchestrator.ground.errors import AuditUnavailableError
from orchestrator.operate.operator.reload import Reload
from orchestrator.record.audit.ledger import Ledger
from tests.api.conftest import OPERATOR_KEY, Api
from tests.api.test_inspection import ended
from tests.support.limits import WAIT_SECONDS

KEYS = "/api/keys"


async def recorded(api: Api, operation: str) -> list[dict[str, Any]]:
    found = await api.json("GET", f"/api/audit?operation={operation}")
    return [{name: event[name] for name in ("actor", "args", "error")} for event in found["items"]]


async def test_a_key_is_created_shown_once_used_and_revoked(api: Api) -> None:
    body = {"name": "ci", "max_sessions": 1, "max_cpus": 1.5, "max_level": "medium"}
    body |= {"max_idle_timeout": 60, "max_wall_timeout": 600}
    made = await api.json("POST", KEYS, status=201, json=body)
    key = made.pop("key")
    listed = await api.json("GET", KEYS)
    shown = {each["name"]: each for each in listed["items"]}
    assert shown["ci"] == made
    assert (shown["ci"]["max_sessions"], shown["ci"]["max_cpus"]) == (1, 1.5)
    assert (shown["ci"]["max_idle_timeout"], shown["ci"]["max_wall_timeout"]) == (60, 600)
    assert [name for name, each in shown.items() if each["current"]] == ["admin"]
    assert key not in str(listed)
    assert listed["obstacle"] is None
    assert api.plane.settings.keys_path.read_text().count(key) == 0

    await api.session(key=key)
    used = (await api.json("GET", KEYS))["items"][1]["used"]
    assert used["sessions"] == 1
    await api.problem(429, "rate_limited", "POST", "/api/sessions", key=key, json={})
    await api.problem(403, "permission_denied", "GET", KEYS, key=key)

    assert (await api.call("DELETE", f"{KEYS}/ci")).status == 204
    await api.problem(401, "unauthorized", "GET", "/api/sessions", key=key)
    await api.problem(404, "not_found", "DELETE", f"{KEYS}/ci")
    args = {"name": "ci", "role": "operator", "max_sessions": 1, "max_cpus": "1.5"}
    args |= {"max_idle_timeout": 60, "max_wall_timeout": 600}
    assert await recorded(api, "key.create") == [
        {"actor": "admin", "args": {**args, "max_level": "medium"}, "error": None}
    ]
    revoked = {"actor": "admin", "args": {"name": "ci"}, "error": None}
    assert await recorded(api, "key.revoke") == [revoked]


async def test_streams_of_a_revoked_key_end(api: Api) -> None:
    key = (await api.json("POST", KEYS, status=201, json={"name": "ci"}))["key"]
    headers = {"Authorization": f"Bearer {key}"}
    async with (
        asyncio.timeout(WAIT_SECONDS),
        api.client.get("/api/events", headers=headers) as response,
    ):
        await api.call("DELETE", f"{KEYS}/ci")
        await ended(response)


@pytest.mark.parametrize(
    ("field", "body"),
    [
        ("name", {"name": "Upper"}),
        ("name", {}),
        ("role", {"name": "x", "role": "root"}),
        ("max_sessions", {"name": "x", "max_sessions": -1}),
        ("max_sessions", {"name": "x", "role": "metrics", "max_sessions": 1}),
        ("requests_per_second", {"name": "x", "requests_per_second": 0}),
        ("max_level", {"name": "x", "max_level": "highest"}),
        ("max_idle_timeout", {"name": "x", "max_idle_timeout": 0}),
        ("max_wall_timeout", {"name": "x", "role": "metrics", "max_wall_timeout": 60}),
        ("images", {"name": "x", "images": ["../x"]}),
        ("expires_at", {"name": "x", "expires_at": "2020-01-01T00:00:00Z"}),
        (None, {"name": "x", "role": "viewer"}),
        (None, {"name": "x", "role": "viewer", "owner": "a", "scope": "all"}),
        ("sha256", {"name": "x", "sha256": "0" * 64}),
    ],
)
async def test_a_malformed_key_is_refused_and_nothing_changes(
    api: Api, field: str | None, body: dict[str, Any]
) -> None:
    before = api.plane.settings.keys_path.read_text()
    problem = await api.problem(400, "validation_error", "POST", KEYS, json=body)
    assert problem.get("field") == field
    assert api.plane.settings.keys_path.read_text() == before
    assert await recorded(api, "key.create") == []


async def test_names_are_taken_once_and_the_admin_key_stays(api: Api) -> None:
    for name in ("admin", "operator"):
        await api.problem(409, "conflict", "POST", KEYS, json={"name": name})
    problem = await api.problem(409, "conflict", "DELETE", f"{KEYS}/admin")
    assert "rotate-admin" in problem["detail"]
    assert await recorded(api, "key.create") == []


async def test_only_admins_see_or_change_keys(api: Api) -> None:
    handle = (await api.session(key=OPERATOR_KEY))["handle"]
    for key in (OPERATOR_KEY, handle):
        for method, path in (("GET", KEYS), ("POST", KEYS), ("DELETE", f"{KEYS}/operator")):
            await api.problem(403, "permission_denied", method, path, key=key, json={"name": "x"})
    made = await api.json("POST", KEYS, status=201, json={"name": "ops", "role": "admin"})
    assert len((await api.json("GET", KEYS, key=made["key"]))["items"]) > 1


async def test_an_expiry_is_kept(api: Api) -> None:
    moment = datetime.now(UTC) + timedelta(days=1)
    body = {"name": "short", "role": "viewer", "scope": "all", "expires_at": moment.isoformat()}
    made = await api.json("POST", KEYS, status=201, json=body)
    assert made["expires_at"] == f"{moment:%Y-%m-%dT%H:%M:%S}.000000Z"
    assert not made["expired"]


async def test_a_file_that_is_read_only_says_what_to_do(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Root may write where the mode forbids it, so the kernel's refusal is imitated."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(os, "access", lambda *_: False)
    assert "PADDOCK_KEYS_FILE" in (await api.json("GET", KEYS))["obstacle"]
    monkeypatch.setattr("orchestrator.rules.access.keys_file.replace", refuse)
    problem = await api.problem(409, "conflict", "POST", KEYS, json={"name": "ci"})
    assert "Read-only" in problem["detail"]
    assert "PADDOCK_KEYS_FILE" in problem["detail"]
    assert [event["error"] is None for event in await recorded(api, "key.create")] == [False, True]
    await api.problem(409, "conflict", "DELETE", f"{KEYS}/operator")
    assert (await api.call("GET", "/api/sessions", key=OPERATOR_KEY)).status == 200


async def test_nothing_is_created_without_a_record_and_a_revocation_comes_first(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = Ledger.append

    async def fail(self: Ledger, draft: Any, *rest: Any) -> Any:
        if draft.operation in failing:
            raise AuditUnavailableError("the disk is full")
        return await append(self, draft, *rest)

    failing = {"key.create", "key.revoke", "policy.reloaded"}
    before = api.plane.settings.keys_path.read_text()
    monkeypatch.setattr(Ledger, "append", fail)
    await api.problem(503, "audit_unavailable", "POST", KEYS, json={"name": "ci"})
    assert api.plane.settings.keys_path.read_text() == before
    await api.problem(503, "audit_unavailable", "DELETE", f"{KEYS}/operator")
    await api.problem(401, "unauthorized", "GET", "/api/sessions", key=OPERATOR_KEY)


async def test_a_change_that_does_not_come_into_force_is_an_error(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def late(_: Reload) -> None:
        raise TimeoutError

    with monkeypatch.context() as patch:
        patch.setattr(Reload, "look", late)
        problem = await api.problem(409, "conflict", "POST", KEYS, json={"name": "ci"})
        assert "its disk does not answer" in problem["detail"]
    assert [event["error"] is None for event in await recorded(api, "key.create")] == [False, True]
