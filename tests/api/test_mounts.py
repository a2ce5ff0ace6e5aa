"""Mounts over HTTP: who may request them, what is shown, and what is refused."""

from pathlib import Path

import pytest

from orchestrator.settings.operator_mounts import OperatorMount
from orchestrator.settings.settings import Settings
from tests.api.conftest import Api
from tests.support.cases import each


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    (tmp_path / "sockets").mkdir()
    mounts = {
        "postgresql": OperatorMount(source=f"{tmp_path}/sockets", target="/run/postgresql"),
        "gone": OperatorMount(source=f"{tmp_path}/gone", target="/run/gone"),
    }
    return settings.model_copy(update={"mounts": mounts})


async def test_a_session_with_a_mount(api: Api) -> None:
    session = await api.session(mounts=["postgresql"])
    assert session["sandbox"]["mounts"] == ["postgresql"]
    path = f"/api/sessions/{session['id']}"
    assert (await api.json("GET", path))["sandbox"]["mounts"] == ["postgresql"]
    tools = (await api.json("GET", path + "/tools"))["items"]
    rules = {tool["tool"]: tool["rule"] for tool in tools if tool["risk_tier"] == "low"}
    assert (rules["psql"], rules["redis-cli"], rules["gdb"]) == (None, "mount", "allow-ptrace")
    answer = await api.problem(
        403, "permission_denied", "POST", path + "/ptys", json={"tool": "redis-cli"}
    )
    assert answer["rule"] == "mount"
    assert "needs a session with the mount redis" in answer["detail"]


async def test_what_is_not_on_the_list(api: Api) -> None:
    answer = await api.problem(
        400, "validation_error", "POST", "/api/sessions", json={"mounts": ["other"]}
    )
    assert answer["field"] == "mounts"
    assert answer["detail"] == "mounts: other is not on the operator's list"
    assert (await api.json("GET", "/api/sessions"))["items"] == []


@each("mounts", [["../x"], [""], ["a/b"], [1], "postgresql", ["a"] * 17])
async def test_what_is_no_name(api: Api, mounts: object) -> None:
    answer = await api.problem(
        400, "validation_error", "POST", "/api/sessions", json={"mounts": mounts}
    )
    assert answer["field"].startswith("mounts")


async def test_what_is_missing_on_the_host_leaves_nothing(api: Api) -> None:
    body = {"id": "free", "mounts": ["postgresql", "gone"]}
    await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
    again = await api.json("POST", "/api/sessions", json={"id": "free"}, status=201)
    assert again["sandbox"]["mounts"] == []


async def test_an_agent_can_not_ask_for_one(api: Api) -> None:
    session = await api.session()
    body = {"id": session["id"], "mounts": ["postgresql"]}
    for method, path in (("POST", "/api/sessions"), ("PUT", f"/api/sessions/{session['id']}")):
        await api.problem(403, "permission_denied", method, path, json=body, key=session["handle"])
