"""Policies of sessions' turns over HTTP: chosen at creation, kept, shown and explained."""

import json
from pathlib import Path
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.store.database import Database
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import NewSession
from paddock.client import Paddock
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.api.test_stopping import ADMIN
from tests.support.cli import run_beside
from tests.support.fake_agent import Agents
from tests.support.restart import reopened

EXPLAIN = "/api/policies/explain"
REVIEW = '[world_rules]\nread_patterns = ["docs/**/*"]\n'
OWN: dict[str, Any] = {
    "extends": "SAFE_EDIT",
    "denied_operations": ["world.write"],
    "world_rules": {"write_patterns": ["lib/**/*"]},
}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    directory = tmp_path / "policies"
    directory.mkdir()
    (directory / "review.toml").write_text(REVIEW)
    return settings.model_copy(update={"session_policies_dir": directory})


async def test_a_session_has_the_policy_that_it_was_created_with(api: Api) -> None:
    for wanted, name in ((None, "SAFE_ANALYSIS"), ("SAFE_EDIT", "SAFE_EDIT"), (OWN, None)):
        asked = {} if wanted is None else {"policy": wanted}
        created = await api.session(**asked)
        assert created["policy"]["name"] == name
        shown = await api.json("GET", f"/api/sessions/{created['id']}")
        assert shown["policy"]["sha256"] == created["policy"]["sha256"]
        (event,) = [
            each
            for each in (await api.json("GET", f"/api/sessions/{created['id']}/audit"))["items"]
            if each["operation"] == "session.create"
        ]
        told = event["args"]["policy"]
        assert (told["name"], told["sha256"]) == (name, created["policy"]["sha256"])
        if name is None:
            rules = {part: shown["policy"][part] for part in shown["policy"]}
            # One is what it was before policies could say it, and is not in their digest.
            assert rules.pop("approvers") == 1
            assert told == rules
            assert rules["world_rules"] == {
                "read_patterns": ["**/*"],
                "write_patterns": ["lib/**/*"],
                "read_only": False,
                "proposal_mode": True,
            }
            assert rules["denied_operations"] == ["world.write"]


async def test_policies_are_listed(api: Api) -> None:
    listed = (await api.json("GET", "/api/policies", key=OPERATOR_KEY))["session_policies"]
    assert [policy["name"] for policy in listed] == [
        "SAFE_ANALYSIS",
        "SAFE_EDIT",
        "SAFE_WORK",
        "review",
    ]
    assert listed[3]["world_rules"]["read_patterns"] == ["docs/**/*"]


@pytest.mark.parametrize(
    ("policy", "field", "said"),
    [
        ("other", "policy", "must be one of SAFE_ANALYSIS SAFE_EDIT SAFE_WORK review"),
        ("", "policy", "must match"),
        (5, "policy", "must be"),
        (["SAFE_EDIT"], "policy", "must be"),
        ({"x": 1}, "policy.x", "not a known field"),
        ({"world_rules": []}, "policy.world_rules", "must be"),
        ({"world_rules": {"read_only": "yes"}}, "policy.world_rules.read_only", "boolean"),
        (
            {"world_rules": {"read_patterns": ["a/../b"]}},
            "policy.world_rules.read_patterns.0",
            "must be relative",
        ),
        ({"llm_rules": {"max_tokens_per_call": -1}}, "policy.llm_rules.max_tokens_per_call", ""),
        ({"allowed_operations": ["all"]}, "policy.allowed_operations.0", "must be"),
    ],
)
async def test_a_bad_policy_is_refused_by_field(
    api: Api, policy: Any, field: str, said: str
) -> None:
    problem = await api.problem(
        400, "validation_error", "POST", "/api/sessions", json={"policy": policy}
    )
    assert problem["field"] == field
    assert said in problem["detail"]
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_a_secret_can_t_be_in_a_policy(api: Api) -> None:
    secret = "a-secret-of-the-session"
    own = {"world_rules": {"read_patterns": [secret]}}
    body = {"policy": own, "permission_level": "high", "secrets": {"TOKEN": secret}}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert secret not in str(problem)


async def test_an_operation_is_explained(api: Api) -> None:
    session = await api.session(policy=OWN)
    named: dict[str, Any] = {"session": session["id"]}
    write = {"operation": "world.write", "args": {"ref": "lib/a.py", "content": "x"}}
    answer = await api.json("POST", EXPLAIN, json=named | write, key=session["handle"])
    assert answer == {
        "allow": False,
        "verdict": "deny",
        "rule": "policy-denied",
        "layer": "policy",
        "message": "Operation explicitly denied: world.write",
        "remedy": answer["remedy"],
        "layers": [
            {"layer": "policy", "message": answer["message"], "remedy": answer["remedy"]},
        ],
    }
    answer = await api.json("POST", EXPLAIN, json={"policy": OWN} | write, key=OPERATOR_KEY)
    assert answer["rule"] == "policy-denied"
    answer = await api.json("POST", EXPLAIN, json={"policy": "SAFE_EDIT"} | write)
    assert (answer["rule"], answer["message"]) == ("policy-write", "Write not allowed: lib/a.py")
    call = {"operation": "llm.complete", "args": {"max_tokens": 5000}}
    answer = await api.json("POST", EXPLAIN, json=named | call)
    assert answer["rule"] == "policy-tokens"
    answer = await api.json("POST", EXPLAIN, json=named | {"operation": "facts"})
    assert (answer["allow"], answer["layers"]) == (True, [])
    await api.problem(
        *(403, "permission_denied", "POST", EXPLAIN),
        json={"policy": "SAFE_EDIT"} | write,
        key=session["handle"],
    )


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"level": "low", "operation": "facts"}, "operation goes with session or policy"),
        ({"policy": "SAFE_EDIT", "command": "ls"}, "policy and args go with operation"),
        ({"level": "low", "command": "ls", "args": {}}, "policy and args go with operation"),
        ({"policy": "SAFE_EDIT", "level": "low", "operation": "facts"}, "exactly one of"),
        ({"policy": "SAFE_EDIT"}, "exactly one of"),
        ({"policy": "SAFE_EDIT", "operation": "facts", "cwd": "a"}, "cwd goes with a command"),
        ({"policy": "SAFE_EDIT", "operation": "fly"}, "operation must be"),
        ({"policy": {"x": 1}, "operation": "facts"}, "policy.x"),
        ({"policy": "SAFE_EDIT", "operation": "world.read", "args": {"ref": 5}}, "args.ref"),
    ],
)
async def test_a_question_must_fit_together(api: Api, body: dict[str, Any], said: str) -> None:
    problem = await api.problem(400, "validation_error", "POST", EXPLAIN, json=body)
    assert said in problem["detail"]


async def test_a_changed_file_is_for_new_sessions(api: Api, settings: Settings) -> None:
    before = await api.session(policy="review")
    directory = settings.session_policies_dir
    assert directory is not None
    (directory / "review.toml").write_text(REVIEW.replace("docs", "src"))
    await api.plane.reload.look()
    after = await api.session(policy="review")
    assert after["policy"]["sha256"] != before["policy"]["sha256"]
    args = {"operation": "world.read", "args": {"ref": "docs/a"}}
    for session, allow in ((before, True), (after, False)):
        answer = await api.json("POST", EXPLAIN, json={"session": session["id"], **args})
        assert answer["allow"] is allow
    (directory / "review.toml").write_text("x = 1")
    await api.plane.reload.look()
    (problem,) = api.plane.reload.problems.values()
    assert "review.toml:1: x: is not a known field" in problem
    last = await api.session(policy="review")
    assert last["policy"] == after["policy"]
    (directory / "review.toml").unlink()
    await api.plane.reload.look()
    gone = await api.problem(
        400, "validation_error", "POST", "/api/sessions", json={"policy": "review"}
    )
    assert gone["detail"] == "policy must be one of SAFE_ANALYSIS SAFE_EDIT SAFE_WORK"
    assert (await api.json("GET", f"/api/sessions/{last['id']}"))["policy"]["name"] == "review"


@pytest.mark.slow
async def test_a_restart_keeps_it(settings: Settings, engine: FakeEngine, agents: Agents) -> None:
    plane = await ControlPlane.open(settings, engine)
    created = await plane.sessions.create(ADMIN, NewSession(id="box", policy=OWN))
    await plane.sessions.create(ADMIN, NewSession(id="old"))
    await plane.close()
    database = await Database.open(settings.state_dir / "paddock.db")
    await database.write(
        lambda connection: connection.execute("UPDATE sessions SET policy = NULL WHERE id = 'old'")
    )
    await database.close()
    plane = await reopened(settings, engine, agents)
    try:
        found = plane.sessions.registry.get("box")
        assert found is not None
        assert found.policy == created.session.policy
        old = plane.sessions.registry.get("old")
        assert old is not None
        assert old.policy.name == "SAFE_ANALYSIS"
        for session in (found, old):
            await plane.sessions.close(ADMIN, session, purge=False)
    finally:
        await plane.close()


async def test_the_client_and_the_program_choose_and_show_it(
    api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(api.server.make_url("/"))
    monkeypatch.setenv("PADDOCK_URL", url)
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    async with Paddock(url, ADMIN_KEY) as paddock:
        session = await paddock.sessions.create(id="box", policy=OWN)
        assert session.info.policy.name is None
        assert (await paddock.sessions.inspect("box")).policy.denied_operations == ["world.write"]
        names = [policy.name for policy in await paddock.policies.sessions()]
        assert names == ["SAFE_ANALYSIS", "SAFE_EDIT", "SAFE_WORK", "review"]
        found = await paddock.explain(
            policy="SAFE_EDIT", operation="world.write", args={"ref": "src/a"}
        )
        assert found.allow
    (tmp_path / "mine.toml").write_text(REVIEW)
    (tmp_path / "mine.json").write_text(json.dumps(OWN))

    async def cli(*words: str, status: int = 0) -> str:
        ended = await run_beside(*words)
        assert ended.status == status, ended
        return ended.out

    for name in ("mine.toml", "mine.json"):
        made = json.loads(
            await cli("sessions", "create", "--policy", str(tmp_path / name), "--json")
        )
        assert made["policy"]["name"] is None
    made = json.loads(await cli("sessions", "create", "--policy", "review", "--json"))
    assert made["policy"]["name"] == "review"
    assert "review" in await cli("policies", "list")
    assert "docs/**/*" in await cli("policies", "show", "review")
    asked = ("policies", "explain", "--operation", "world.read", "--ref")
    assert "allowed" in await cli(*asked, "a.py")
    assert "Read not allowed: .env" in await cli(*asked, ".env", status=4)
    assert "policy-read" in await cli(*asked, "a.py", "--policy", "review", status=4)
