"""Scopes of keys: each operation has one, and a key does nothing beyond those that it has."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from aiohttp import web

from api.catalog import OPERATIONS
from api.mcp.code_tools import CODE_TOOLS
from api.mcp.command_tools import COMMAND_TOOLS
from api.mcp.file_tools import FILE_TOOLS
from api.mcp.shell_tools import SHELL_TOOLS
from api.shape.access import Access
from orchestrator.settings.settings import Settings
from paddock.contract.scopes import SCOPE_OF, SCOPES
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, Api
from tests.api.test_inspection import ended
from tests.api.test_mcp import Talk
from tests.api.test_roles import _request
from tests.support.fake_agent import Play
from tests.support.keys import entry
from tests.support.limits import WAIT_SECONDS
from tests.support.previews import previews, program

READS = "pdk_key-that-reads-sessions-only"
MAKES = "pdk_key-that-creates-sessions-only"
ADMINS = "pdk_admin-with-the-keys-scope-only"
NOTHING = "pdk_admin-that-reads-metrics-only"


@pytest.fixture
def settings(settings: Settings) -> Settings:
    assert settings.keys_file is not None
    settings.keys_file.write_text(
        entry("operator", OPERATOR_KEY)
        + entry("reads", READS, more='scopes = ["sessions:read", "mcp"]')
        + entry("makes", MAKES, more='scopes = ["sessions:create", "sessions:change", "mcp"]')
        + entry("deputy", ADMINS, "admin", 'scopes = ["keys", "sessions:change"]')
        + entry("nothing", NOTHING, "admin", 'scopes = ["metrics"]')
    )
    return settings.model_copy(update={"compat": ("e2b",)})


def test_every_operation_has_exactly_one_scope() -> None:
    free = (Access.OPEN, Access.SELF)
    demanding = {each.id for each in OPERATIONS if each.access not in free}
    counted = Counter(name for scope in SCOPES.values() for name in scope.operations)
    assert set(counted) == demanding
    assert set(counted.values()) == {1}


async def test_a_key_may_do_nothing_beyond_its_scopes(api: Api) -> None:
    await api.session(id="box", key=OPERATOR_KEY)
    asked = len(api.agent.requests)
    for operation in OPERATIONS:
        if operation.scope in (None, "metrics"):
            continue
        path, arguments = _request(operation, "cmd-0000000000000000")
        response = await api.call(operation.method, path, key=NOTHING, **arguments)
        assert response.status == 403, operation.id
        if operation.method != "HEAD":
            problem = await response.json()
            assert (problem["rule"], problem["scope"]) == ("key-scope", operation.scope)
    assert len(api.agent.requests) == asked
    assert (await api.call("GET", "/metrics", key=NOTHING)).status == 200


async def test_a_handle_may_do_what_its_owners_scopes_permit(api: Api) -> None:
    """Otherwise a key without `exec` would create a session and run programs with its handle."""
    made = await api.session(id="box", key=MAKES)
    asked = len(api.agent.requests)
    for key in (made["handle"], MAKES):
        body = {"argv": ["cat", "/etc/passwd"]}
        where = ("POST", "/api/sessions/box/exec")
        problem = await api.problem(403, "permission_denied", *where, key=key, json=body)
        assert problem["scope"] == "exec"
    rotated = await api.json("POST", "/api/sessions/box/handle", key=MAKES, json={})
    await api.problem(403, "permission_denied", *where, key=rotated["handle"], json=body)
    for face in ("swerex/sessions/box/read_file", "e2b/sandboxes/box/connect"):
        response = await api.call("POST", f"/compat/{face}", key=rotated["handle"], json={})
        assert response.status in (401, 403, 404)
    assert len(api.agent.requests) == asked


async def test_no_tool_of_mcp_works_without_its_scope(api: Api) -> None:
    made = await api.session(id="box", key=MAKES)
    talk = Talk(api, made)
    await talk.begin()
    asked = len(api.agent.requests)
    given = {"command": "id", "argv": ["id"], "path": "a.txt", "text": "x", "code": "1"}
    for tool in (*COMMAND_TOOLS, *CODE_TOOLS, *SHELL_TOOLS, *FILE_TOOLS):
        known = {name: given[name] for name in tool.schema["properties"] if name in given}
        result = await talk.call(tool.name, **known)
        assert result["isError"], tool.name
    assert len(api.agent.requests) == asked


async def test_scopes_are_taken_from_a_key_and_its_handles_at_once(
    api: Api, settings: Settings
) -> None:
    made = await api.session(id="box", key=OPERATOR_KEY)
    api.agent.plays["cat"] = Play(b"text")
    body = {"argv": ["cat"]}
    await api.json("POST", "/api/sessions/box/exec", key=made["handle"], json=body)
    assert settings.keys_file is not None
    text = entry("operator", OPERATOR_KEY, more='scopes = ["sessions:read"]')
    settings.keys_file.write_text(text)
    await api.plane.reload.look()
    where = ("POST", "/api/sessions/box/exec")
    await api.problem(403, "permission_denied", *where, key=made["handle"], json=body)
    assert (await api.json("GET", "/api/sessions/box", key=made["handle"]))["id"] == "box"


async def test_a_key_hands_out_no_more_than_its_scopes(api: Api) -> None:
    await api.session(id="box", key=OPERATOR_KEY)
    where = ("POST", "/api/sessions/box/handle")
    await api.problem(403, "permission_denied", *where, key=ADMINS, json={})
    for scopes in (None, ["keys", "exec"]):
        body: dict[str, Any] = {"name": "more"} | ({} if scopes is None else {"scopes": scopes})
        await api.problem(403, "permission_denied", "POST", "/api/keys", key=ADMINS, json=body)
    body = {"name": "less", "role": "admin", "scopes": ["keys"]}
    made = await api.json("POST", "/api/keys", status=201, key=ADMINS, json=body)
    assert made["scopes"] == ["keys"]
    listed = await api.json("GET", "/api/keys", key=made["key"])
    assert "more" not in [each["name"] for each in listed["items"]]


async def test_an_unknown_scope_is_refused_by_name(api: Api) -> None:
    body = {"name": "ci", "scopes": ["exce"]}
    problem = await api.problem(400, "validation_error", "POST", "/api/keys", json=body)
    assert problem["field"] == "scopes"
    assert "did you mean exec?" in problem["detail"]
    shown = await api.json("GET", "/api/keys", key=ADMIN_KEY)
    assert {each["name"]: each["scopes"] for each in shown["items"]}["reads"] == [
        "mcp",
        "sessions:read",
    ]
    assert SCOPE_OF["exec"] == "exec"


async def test_a_rotated_key_is_one_key_and_its_old_secret_can_end_at_once(api: Api) -> None:
    first = (await api.json("POST", "/api/keys", status=201, json={"name": "ci"}))["key"]
    await api.session(id="mine", key=first)
    made = await api.json("POST", "/api/keys/ci/rotation", json={"overlap_seconds": 60})
    assert made["old_until"] is not None
    for key in (first, made["key"]):
        assert (await api.json("GET", "/api/sessions/mine", key=key))["owner"] == "ci"
    again = ("POST", "/api/keys/ci/rotation")
    await api.problem(409, "conflict", *again, json={})
    headers = {"Authorization": f"Bearer {first}"}
    async with api.client.get("/api/events", headers=headers) as response:
        assert response.status == 200
        last = await api.json(*again, json={"overlap_seconds": 0})
        async with asyncio.timeout(WAIT_SECONDS):
            await ended(response)
    for key in (first, made["key"]):
        await api.problem(401, "unauthorized", "GET", "/api/sessions", key=key)
    assert (await api.json("GET", "/api/sessions/mine", key=last["key"]))["owner"] == "ci"
    await api.problem(404, "not_found", "POST", "/api/keys/cd/rotation", json={})
    await api.problem(409, "conflict", "POST", "/api/keys/admin/rotation", json={})
    await api.problem(403, "permission_denied", *again, key=ADMINS, json={"overlap_seconds": 0})


async def test_the_last_use_of_a_key_is_shown(api: Api) -> None:
    shown = {each["name"]: each for each in (await api.json("GET", "/api/keys"))["items"]}
    assert shown["reads"]["last_used_at"] is None
    await api.json("GET", "/api/sessions", key=READS)
    shown = {each["name"]: each for each in (await api.json("GET", "/api/keys"))["items"]}
    assert shown["reads"]["last_used_at"] is not None


async def test_pages_of_ports_and_tickets_need_their_scopes(api: Api) -> None:
    """`reads` sees its session, and reaches neither its pages nor its terminals."""
    owned = {"reads": READS, "operator": OPERATOR_KEY}
    async with previews(api.plane) as shown, program(_page) as running:
        for name, key in owned.items():
            made = await api.session(id=name, key=OPERATOR_KEY, permission_level="high")
            api.plane.sessions.registry.get(name).owner = name  # type: ignore[union-attr]
            body = {"port": running.port}
            path = f"/api/sessions/{name}/ports"
            await api.json("POST", path, json=body, status=201)
            seen = await api.json("GET", f"/api/sessions/{name}", key=key)
            assert seen["id"] == made["id"]
        page = f"/s/reads/{running.port}/"
        asked = len(running.received)
        answer = await shown.get(page, key=READS)
        assert (answer.status, "secret page" in await answer.text()) == (403, False)
        assert len(running.received) == asked
        assert (await shown.get(f"/s/operator/{running.port}/", key=OPERATOR_KEY)).status == 200
    wanted = {"session_id": "reads"}
    problem = await api.problem(
        403, "permission_denied", "POST", "/api/tickets", key=READS, json=wanted
    )
    assert problem["scope"] == "exec"


async def _page(request: web.Request) -> web.Response:
    return web.Response(text="secret page")


async def test_the_face_of_e2b_needs_the_scopes(api: Api) -> None:
    """A key that reads sessions runs nothing, reads no file and creates nothing there."""
    await api.session(id="box", key=OPERATOR_KEY, permission_level="high")
    api.plane.sessions.registry.get("box").owner = "reads"  # type: ignore[union-attr]
    agent = api.agent
    asked = len(agent.requests)
    headers = {"X-API-Key": READS, "E2b-Sandbox-Id": "box", "X-Access-Token": READS}
    for method, path in (
        ("GET", "files?path=a.txt"),
        ("POST", "files?path=a.txt"),
        ("GET", "envs"),
        ("GET", "metrics"),
        ("POST", "filesystem.Filesystem/ListDir"),
        ("POST", "filesystem.Filesystem/Remove"),
        ("POST", "sandboxes"),
        ("POST", "sandboxes/box/pause"),
        ("DELETE", "sandboxes/box"),
    ):
        body = {"templateID": "base", "path": "/"}
        url = f"/compat/e2b/{path}"
        answer = await api.client.request(method, url, headers=headers, json=body)
        text = await answer.text()
        assert (answer.status, "lacks the scope" in text) == (403, True), (path, text)
    assert len(agent.requests) == asked
    shown = await api.client.get("/compat/e2b/sandboxes/box", headers=headers)
    assert shown.status == 200
    session = api.plane.sessions.registry.get("box")
    assert session is not None
    assert session.live
