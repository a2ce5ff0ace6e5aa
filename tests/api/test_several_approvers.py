"""Approvals that need two people who did not ask."""

from pathlib import Path

import pytest

from orchestrator.operate.hooks.messages import messages_of
from orchestrator.rules import policy
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from orchestrator.work.approvals.approvals import Line
from tests.api.conftest import OPERATOR_KEY, Api
from tests.support.keys import entry

PACKAGED = Path(policy.__file__).parent / "levels"
ONE, TWO, THREE = (f"pdk_approver-number-{number}" for number in ("one", "two", "three"))
DROP = Line("pty-1", "psql.drop_table", "DROP TABLE users", "high")
APPROVE, DENY = {"decision": "approve"}, {"decision": "deny"}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    assert settings.keys_file is not None
    scopes = 'scopes = ["approve", "sessions:read", "sessions:change"]'
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY)
        + entry("one", ONE, "admin", scopes)
        + entry("two", TWO, "admin", scopes)
        + entry("three", THREE, "admin")
    )
    levels = tmp_path / "levels"
    levels.mkdir()
    text = (PACKAGED / "high.toml").read_text()
    (levels / "high.toml").write_text(f"approvers = 2\n{text}")
    return settings.model_copy(update={"levels_dir": levels})


async def _ask(api: Api, actor: str = "handle:box") -> str:
    found = api.plane.sessions.finder.find(Principal("admin", Role.ADMIN), "box")
    return (await api.plane.approvals.obtain(found, DROP, actor, 0)).id


async def test_two_people_approve_and_none_of_them_asked(api: Api) -> None:
    await api.session(id="box", key=OPERATOR_KEY, permission_level="high")
    path = f"/api/approvals/{await _ask(api)}"
    problem = await api.problem(
        403, "permission_denied", "POST", path, key=OPERATOR_KEY, json=APPROVE
    )
    assert problem["rule"] == "other-approver"
    shown = await api.json("POST", path, key=ONE, json=APPROVE)
    assert (shown["status"], shown["approvers"], shown["approved_by"]) == ("pending", 2, ["one"])
    await api.problem(409, "conflict", "POST", path, key=ONE, json=APPROVE)
    listed = await api.json("GET", "/api/approvals", key=TWO)
    assert listed["items"][0]["approved_by"] == ["one"]
    shown = await api.json("POST", path, key=TWO, json=APPROVE)
    assert (shown["status"], shown["approved_by"]) == ("approved", ["one", "two"])
    events = await api.json("GET", "/api/sessions/box/audit?operation=approval.decision")
    found = [
        (each["actor"], each["decision"], each["result"]["approved_by"]) for each in events["items"]
    ]
    assert found == [("one", "pending", ["one"]), ("two", "allow", ["one", "two"])]


async def test_who_gave_the_handle_or_used_the_session_has_asked(api: Api) -> None:
    await api.session(id="box", key=OPERATOR_KEY, permission_level="high")
    await api.json("POST", "/api/sessions/box/handle", key=THREE, json={})
    path = f"/api/approvals/{await _ask(api, 'two')}"
    for key in (THREE, TWO):
        await api.problem(403, "permission_denied", "POST", path, key=key, json=APPROVE)
    await api.json("POST", path, key=ONE, json=APPROVE)


async def test_one_denial_ends_it_and_anybody_who_may_decide_can_deny(api: Api) -> None:
    await api.session(id="box", key=OPERATOR_KEY, permission_level="high")
    path = f"/api/approvals/{await _ask(api)}"
    await api.json("POST", path, key=ONE, json=APPROVE)
    denied = await api.json("POST", path, key=OPERATOR_KEY, json=DENY)
    assert (denied["status"], denied["approved_by"]) == ("denied", ["one"])
    await api.problem(409, "conflict", "POST", path, key=TWO, json=APPROVE)


async def test_a_session_policy_demands_several_people(api: Api) -> None:
    """At a level that does not; a hook is told of the request, and of no partial approval."""
    policy = {"extends": "SAFE_WORK", "approvers": 3}
    made = await api.session(id="box", key=OPERATOR_KEY, permission_level="medium", policy=policy)
    shown = await api.json("GET", "/api/sessions/box")
    assert shown["policy"]["approvers"] == 3
    found = api.plane.sessions.finder.find(Principal("admin", Role.ADMIN), made["id"])
    assert found.level.approvers == 1
    hook = {"url": "https://ci.example.com/asked", "events": ["approval.requested"]}
    added = await api.json("POST", "/api/hooks", status=201, json=hook)
    path = f"/api/approvals/{await _ask(api)}"
    for key, done in ((ONE, 1), (TWO, 2)):
        shown = await api.json("POST", path, key=key, json=APPROVE)
        assert (shown["status"], shown["approvers"]) == ("pending", 3)
        assert len(shown["approved_by"]) == done
    shown = await api.json("POST", path, key=THREE, json=APPROVE)
    assert shown["status"] == "approved"
    recorded = await api.json("GET", "/api/sessions/box/audit?limit=1000")
    told = [
        message
        for event in recorded["items"]
        for message in messages_of(event, ["approval.requested"])
    ]
    assert [message.data["command"] for message in told] == [DROP.text]
    await api.json("DELETE", f"/api/hooks/{added['id']}")
    for wrong in (0, 9, "2"):
        body = {"policy": {"approvers": wrong}}
        problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
        assert problem["field"] == "policy.approvers"
