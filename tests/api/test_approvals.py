"""Approvals and tools over HTTP, by the client, and at the command line."""

import asyncio
import json
import shutil
import signal
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.record.audit.verification import verify
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.operator_hooks import OperatorHook
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import NewSession
from orchestrator.work.approvals.approvals import Line
from paddock import Approval, ConflictError, NotFoundError, Paddock, PermissionDeniedError
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.api.test_cli import started
from tests.api.test_exec import read_event
from tests.support.cases import each
from tests.support.cli import run_beside
from tests.support.fake_agent import Agents
from tests.support.limits import WAIT_SECONDS
from tests.support.manifests import PSQL
from tests.support.restart import reopened

EXAMPLES = Path(__file__).parents[2] / "examples" / "cedar"
ADMIN = Principal("admin", Role.ADMIN)
DROP = Line("pty-1", "psql.drop_table", "DROP TABLE users", "high")


@pytest.fixture
async def session(api: Api) -> dict[str, Any]:
    return await api.session(key=OPERATOR_KEY, id="web-1")


async def ask(api: Api, session_id: str = "web-1", line: Line = DROP) -> str:
    """Does what a terminal does when a line needs an approval; returns the approval's id."""
    found = api.plane.sessions.finder.find(ADMIN, session_id)
    return (await api.plane.approvals.obtain(found, line, f"handle:{session_id}", 0)).id


async def test_list_and_decide(api: Api, session: dict[str, Any]) -> None:
    first, second = await ask(api), await ask(api, line=DROP._replace(text="DROP TABLE b"))
    listed = await api.json("GET", "/api/approvals", key=OPERATOR_KEY)
    assert [item["id"] for item in listed["items"]] == [second, first]
    assert listed["items"][1] | {"requested_at": ""} == {
        "id": first,
        "session_id": "web-1",
        "owner": "operator",
        "terminal_id": "pty-1",
        "tool": "psql.drop_table",
        "command": "DROP TABLE users",
        "risk_tier": "high",
        "status": "pending",
        "requested_by": "handle:web-1",
        "requested_at": "",
        "decided_by": None,
        "decided_at": None,
        "reason": None,
        "files": {},
        "approvers": 1,
        "approved_by": [],
        "incarnation": 1,
    }
    body = {"decision": "deny", "reason": "still in use"}
    denied = await api.json("POST", f"/api/approvals/{first}", json=body, key=OPERATOR_KEY)
    assert (denied["status"], denied["decided_by"]) == ("denied", "operator")
    assert denied["reason"] == "still in use"
    pending = await api.json("GET", "/api/approvals?status=pending")
    assert [item["id"] for item in pending["items"]] == [second]
    problem = await api.problem(409, "conflict", "POST", f"/api/approvals/{first}", json=body)
    assert "is already denied" in problem["detail"]


async def test_pages(api: Api, session: dict[str, Any]) -> None:
    for number in range(3):
        await ask(api, line=DROP._replace(text=f"DROP TABLE t{number}"))
    first = await api.json("GET", "/api/approvals?limit=2")
    rest = await api.json("GET", f"/api/approvals?limit=2&cursor={first['next']}")
    commands = [item["command"] for item in (*first["items"], *rest["items"])]
    assert commands == ["DROP TABLE t2", "DROP TABLE t1", "DROP TABLE t0"]
    assert rest["next"] is None


async def test_a_handle_decides_nothing(api: Api, session: dict[str, Any]) -> None:
    approval = await ask(api)
    body = {"decision": "approve"}
    for method, path, arguments in (
        ("GET", "/api/approvals", {}),
        ("POST", f"/api/approvals/{approval}", {"json": body}),
    ):
        await api.problem(
            403, "permission_denied", method, path, key=session["handle"], **arguments
        )
    pending = await api.json("GET", "/api/approvals?status=pending")
    assert [item["id"] for item in pending["items"]] == [approval]


async def test_others_approvals_are_not_there(api: Api, session: dict[str, Any]) -> None:
    approval = await ask(api)
    assert (await api.json("GET", "/api/approvals", key=OTHER_KEY))["items"] == []
    await api.problem(
        404,
        "not_found",
        "POST",
        f"/api/approvals/{approval}",
        json={"decision": "approve"},
        key=OTHER_KEY,
    )
    await api.problem(
        404, "not_found", "POST", "/api/approvals/apr-none", json={"decision": "approve"}
    )


@each(
    ("body", "field"),
    [
        ({}, "decision"),
        ({"decision": "yes"}, "decision"),
        ({"decision": True}, "decision"),
        ({"decision": "approve", "reason": 1}, "reason"),
        ({"decision": "approve", "reason": "x" * 1025}, "reason"),
        ({"decision": "approve", "text": "DROP TABLE other"}, "text"),
    ],
)
async def test_bad_bodies_change_nothing(
    api: Api, session: dict[str, Any], body: dict[str, Any], field: str
) -> None:
    approval = await ask(api)
    problem = await api.problem(
        400, "validation_error", "POST", f"/api/approvals/{approval}", json=body
    )
    assert problem["field"] == field
    listed = await api.json("GET", "/api/approvals?status=pending")
    assert len(listed["items"]) == 1


@each("query", ["status=open", "limit=0", "cursor=x", "owner=a"])
async def test_bad_queries(api: Api, query: str) -> None:
    await api.problem(400, "validation_error", "GET", f"/api/approvals?{query}")


async def test_requests_and_decisions_are_in_the_event_stream(
    api: Api, session: dict[str, Any]
) -> None:
    stream = await api.call("GET", "/api/events", key=OPERATOR_KEY)
    approval = await ask(api)
    name, event, _ = await read_event(stream)
    assert (name, event["decision"], event["args"]["approval_id"]) == (
        "approval.request",
        "pending",
        approval,
    )
    await api.json("POST", f"/api/approvals/{approval}", json={"decision": "approve"})
    name, event, _ = await read_event(stream)
    assert (name, event["decision"], event["actor"]) == ("approval.decision", "allow", "admin")


async def test_nothing_is_decided_without_the_ledger(api: Api, session: dict[str, Any]) -> None:
    approval = await ask(api)
    await api.plane.ledger.close()
    body = {"decision": "approve"}
    await api.problem(503, "audit_unavailable", "POST", f"/api/approvals/{approval}", json=body)


async def test_a_hook_is_told(settings: Settings, engine: FakeEngine, agents: Agents) -> None:
    told: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    async def receive(request: web.Request) -> web.Response:
        assert request.headers["Paddock-Signature"].startswith("v1=")
        told.set_result(await request.json())
        return web.Response()

    app = web.Application()
    app.router.add_post("/hook", receive)
    async with TestServer(app) as server:
        update = {
            "hooks": {
                "approvals": OperatorHook(
                    url=str(server.make_url("/hook")),
                    secret=SecretStr("the-secret-of-the-tests"),
                    events=("approval.requested",),
                )
            }
        }
        plane = await ControlPlane.open(settings.model_copy(update=update), engine)
        try:
            session, *_ = await plane.sessions.create(ADMIN, NewSession(id="web-1"))
            asked = await plane.approvals.obtain(session, DROP, "handle:web-1", 0)
            async with asyncio.timeout(WAIT_SECONDS):
                message = await told
            await plane.sessions.close(ADMIN, session, purge=False)
        finally:
            await plane.close()
    assert (message["type"], message["data"]["approval_id"]) == ("approval.requested", asked.id)
    assert message["data"]["command"] == asked.text


async def test_a_restart_expires_what_waits(
    settings: Settings, engine: FakeEngine, agents: Agents
) -> None:
    before = await ControlPlane.open(settings, engine)
    session, *_ = await before.sessions.create(ADMIN, NewSession(id="web-1"))
    asked = await before.approvals.obtain(session, DROP, "handle:web-1", 0)
    await before.close()
    after = await reopened(settings, engine, agents)
    try:
        (found,), _ = await after.approvals.list(ADMIN)
        assert (found.id, found.status) == (asked.id, "expired")
        (session,) = after.sessions.registry.all
        assert (await verify(after.database, session.key)).ok
        await after.sessions.close(ADMIN, session, purge=False)
    finally:
        await after.close()


# Tools


async def test_tools_of_a_session(api: Api, session: dict[str, Any]) -> None:
    listed = await api.json("GET", "/api/sessions/web-1/tools", key=session["handle"])
    by_name = {item["name"]: item for item in listed["items"]}
    sums = by_name["python3.calculate"]
    assert (sums["allowed"], sums["rule"], sums["human_approval"]) == (True, None, False)
    assert sums["input_schema"]["required"] == ["command"]
    drop = by_name["psql.drop_table"]
    assert (drop["allowed"], drop["rule"], drop["human_approval"]) == (False, "mount", True)
    await api.problem(404, "not_found", "GET", "/api/sessions/none/tools")


class TestWithFiles:
    """Manifests and policies that are read from folders."""

    @pytest.fixture
    def settings(self, settings: Settings, tmp_path: Path) -> Settings:
        tools, cedar = tmp_path / "tools", tmp_path / "cedar"
        for folder in (tools, cedar):
            folder.mkdir()
        shutil.copy(PSQL, tools)
        shutil.copy(EXAMPLES / "interaction_limit.cedar", cedar)
        (cedar / "tools.cedar").write_text(
            "permit (principal, action, resource) when"
            ' { resource.tool_name == "psql_session.select_query" };'
        )
        return settings.model_copy(update={"tools_dir": tools, "cedar_dir": cedar})

    async def test_what_policies_never_permit_is_marked(
        self, api: Api, session: dict[str, Any]
    ) -> None:
        listed = await api.json("GET", "/api/sessions/web-1/tools")
        rules = {item["name"]: item["rule"] for item in listed["items"]}
        assert rules["psql_session.select_query"] is None
        assert rules["psql_session.insert"] == "cedar"
        assert rules["psql_session.drop_table"] == "risk-tier"
        assert rules["python3.calculate"] == "cedar"

    async def test_they_follow_their_files(self, api: Api, session: dict[str, Any]) -> None:
        tools = api.plane.settings.tools_dir
        assert tools is not None
        pinned = api.plane.reload.tools.catalog["psql_session"]
        path = tools / PSQL.name
        path.write_text(PSQL.read_text().replace("max_interactions = 200", "max_interactions = 0"))
        await api.plane.reload.look()
        assert api.plane.reload.tools.catalog["psql_session"] is pinned
        assert "max_interactions" in api.plane.reload.problems[path]
        ready = await api.json("GET", "/readyz", key=None)
        assert ready["checks"]["policy files"]["status"] == "warning"
        path.write_text(PSQL.read_text().replace("max_interactions = 200", "max_interactions = 9"))
        await api.plane.reload.look()
        assert api.plane.reload.tools.catalog["psql_session"].max_interactions == 9
        assert pinned.max_interactions == 200
        assert api.plane.reload.problems == {}


# The client


async def test_the_client(api: Api, session: dict[str, Any]) -> None:
    url = str(api.server.make_url("/"))
    first = await ask(api)
    async with Paddock(url, OPERATOR_KEY) as paddock:
        async with asyncio.timeout(WAIT_SECONDS), aclosing(paddock.approvals.watch()) as watching:
            assert (await anext(watching)).id == first
            second = await ask(api, line=DROP._replace(text="DROP TABLE b"))
            assert (await anext(watching)).id == second
        approved = await paddock.approvals.approve(first, reason="fine")
        assert isinstance(approved, Approval)
        assert (approved.status, approved.reason) == ("approved", "fine")
        assert (await paddock.approvals.deny(second)).status == "denied"
        assert [each.id for each in await paddock.approvals.list(status="denied")] == [second]
        with pytest.raises(ConflictError):
            await paddock.approvals.deny(first)
        with pytest.raises(NotFoundError):
            await paddock.approvals.approve("apr-none")
        tools = await (await paddock.sessions.get("web-1")).tools()
        assert next(tool for tool in tools if tool.name == "gdb.kill").allowed is False
    async with Paddock(url, session["handle"]) as agent:
        with pytest.raises(PermissionDeniedError):
            await agent.approvals.list()


# The command line


@pytest.fixture
def environment(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)


@pytest.mark.usefixtures("environment")
async def test_the_command_line(api: Api, session: dict[str, Any]) -> None:
    first, second = await ask(api), await ask(api, line=DROP._replace(text="DROP \u202eTABLE"))
    listed = await run_beside("approvals", "list", "--status", "pending")
    assert listed.status == 0
    assert "DROP TABLE users" in listed.out
    assert "\u202e" not in listed.out  # shown in a visible form
    approved = await run_beside("approvals", "approve", first, "--reason", "fine", "--json")
    assert json.loads(approved.out)["status"] == "approved"
    denied = await run_beside("approvals", "deny", second)
    assert denied.out.startswith("denied")
    again = await run_beside("approvals", "approve", second)
    assert again.status == 1
    assert "is already denied" in again.line
    gone = await run_beside("approvals", "deny", "apr-none")
    assert gone.status == 5


@pytest.mark.usefixtures("environment")
@pytest.mark.slow
async def test_watching(api: Api, session: dict[str, Any]) -> None:
    first = await ask(api)
    async with started("approvals", "watch", "--json") as watching:
        assert watching.stdout is not None
        assert json.loads(await watching.stdout.readline())["id"] == first
        second = await ask(api, line=DROP._replace(text="DROP TABLE b"))
        assert json.loads(await watching.stdout.readline())["id"] == second
        watching.send_signal(signal.SIGINT)
        assert await watching.wait() == 130
