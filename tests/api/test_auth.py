"""Credentials and rights: what a key, a handle and an anonymous caller may do."""

import pytest

from tests.api.conftest import ADMIN_KEY, IMAGE, OPERATOR_KEY, Api
from tests.support.cases import each


@each(
    "value",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        ADMIN_KEY,
        "Bearer " + ADMIN_KEY + "x",
        "Bearer H-00000000-0000-4000-8000-000000000000",
        "Bearer \xff\xfe",
        "Bearer " + "x" * 4000,
        "Bearer a b c",
    ],
)
async def test_without_a_known_credential(api: Api, value: str | None) -> None:
    headers = {} if value is None else {"Authorization": value}
    for method, path in [("GET", "/api/sessions"), ("POST", "/api/sessions/x/exec")]:
        response = await api.call(method, path, key=None, headers=headers)
        assert response.status == 401
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
        assert (await response.json(content_type=None))["code"] == "unauthorized"


async def test_two_credentials_are_none(api: Api) -> None:
    headers = [("Authorization", f"Bearer {ADMIN_KEY}")] * 2
    response = await api.client.get("/api/sessions", headers=headers)
    assert response.status == 401


async def test_scheme_in_any_case(api: Api) -> None:
    headers = {"Authorization": f"bearer  {ADMIN_KEY}"}
    await api.json("GET", "/api/sessions", key=None, headers=headers)


async def test_health_is_open(api: Api) -> None:
    assert await api.json("GET", "/healthz", key=None) == {"status": "ok"}
    ready = await api.json("GET", "/readyz", key=None)
    assert ready["checks"]["image"]["ok"] is True
    api.plane.ready.fresh_seconds = 0
    api.engine.fail_next("info")
    ready = await api.json("GET", "/readyz", key=None, status=503)
    assert ready["checks"]["engine"]["ok"] is False
    assert IMAGE in ready["checks"]["image"]["detail"]


async def test_a_handle_works_in_its_session_only(api: Api) -> None:
    mine = await api.session(key=OPERATOR_KEY)
    other = await api.session(key=OPERATOR_KEY)
    path, handle = f"/api/sessions/{mine['id']}", mine["handle"]
    for method, rest, body in [
        ("GET", "", None),
        ("GET", "/settings", None),
        ("GET", "/processes", None),
        ("GET", "/files/list", None),
        ("GET", "/audit", None),
        ("GET", "/audit/stats", None),
        ("GET", "/audit/verify", None),
        ("POST", "/exec", {"command": "ls"}),
        ("POST", "/interrupt", {}),
    ]:
        await api.json(method, path + rest, json=body, key=handle)
        stranger = f"/api/sessions/{other['id']}{rest}"
        await api.problem(404, "not_found", method, stranger, json=body, key=handle)


@pytest.mark.parametrize("rest", ["", "/audit", "/events", "/files?path=a"])
async def test_a_handle_does_not_learn_which_sessions_there_are(api: Api, rest: str) -> None:
    handle = (await api.session())["handle"]
    await api.session(id="there")
    problems = [
        await api.problem(404, "not_found", "GET", f"/api/sessions/{name}{rest}", key=handle)
        for name in ("there", "none")
    ]
    assert problems[0]["detail"] == problems[1]["detail"].replace("none", "there")


async def test_a_handle_may_not_manage(api: Api) -> None:
    session = await api.session()
    path = f"/api/sessions/{session['id']}"
    for method, where, body in [
        ("POST", "/api/sessions", {}),
        ("GET", "/api/sessions", None),
        ("GET", "/api/policies", None),
        ("GET", "/api/events", None),
        ("PUT", path, {}),
        ("DELETE", path, None),
        ("POST", path + "/pause", {}),
        ("POST", path + "/resume", {}),
        ("POST", path + "/complete", {}),
        ("POST", path + "/abort", {}),
        ("POST", path + "/handle", {}),
        ("PUT", path + "/settings", {"settings": {"permission_level": "high"}}),
    ]:
        await api.problem(403, "permission_denied", method, where, json=body, key=session["handle"])
    shown = await api.json("GET", path)
    assert (shown["status"], shown["permission_level"]) == ("active", "medium")


async def test_a_handle_is_void_after_the_end(api: Api) -> None:
    session = await api.session()
    path = f"/api/sessions/{session['id']}"
    await api.json("DELETE", path)
    await api.problem(401, "unauthorized", "GET", path, key=session["handle"])


async def test_policies(api: Api) -> None:
    policies = await api.json("GET", "/api/policies", key=OPERATOR_KEY)
    assert [level["name"] for level in policies["items"]] == ["low", "medium", "high"]
    assert policies["items"][2]["commands"] is None
