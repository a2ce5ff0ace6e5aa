"""Sessions over HTTP: their lifecycle, owners and settings."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from orchestrator.sessions import finder
from orchestrator.state import session_pages
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cases import each
from tests.support.until import until


async def test_create_inspect_close(api: Api) -> None:
    response = await api.call("POST", "/api/sessions", json={"labels": {"team/a": "x"}})
    created = await response.json()
    assert response.status == 201
    assert response.headers["Location"] == f"/api/sessions/{created['id']}"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert created["handle"].startswith("H-")
    assert created["permission_level"] == "medium"

    path = f"/api/sessions/{created['id']}"
    shown = await api.json("GET", path)
    assert "handle" not in shown
    assert shown["status"] == "active"
    assert shown["sandbox"]["limits"] == {"cpus": 1.0, "memory_bytes": 2**30, "pids": 128}

    ended = await api.json("DELETE", path)
    assert ended["status"] == "completed"
    assert ended["termination"]["rationale_code"] == "normal"
    assert ended["sandbox"] is None
    assert (await api.json("DELETE", path))["termination"] == ended["termination"]
    assert (await api.json("GET", path))["status"] == "completed"
    assert (await api.json("GET", path + "/settings"))["permission_level"] == "medium"
    await api.problem(410, "session_terminated", "POST", path + "/exec", json={"command": "ls"})
    await api.problem(410, "session_terminated", "PUT", path + "/files?path=a", data=b"x")
    assert not api.engine.containers


async def test_closing_a_session_that_ends_by_itself_waits_until_nothing_is_left(api: Api) -> None:
    await api.session(id="box", wall_timeout=3600)
    (session,) = api.plane.sessions.registry.live
    removal = api.engine.hang_next("remove")
    session.budget.started_at -= timedelta(hours=1)
    ending = asyncio.create_task(api.plane.sessions.expire(session))
    await session.over
    closing = asyncio.create_task(api.json("DELETE", "/api/sessions/box"))
    try:
        await until(lambda: bool(session.lock._waiters) or closing.done())
        assert not closing.done()
        assert api.engine.containers
    finally:
        removal.set()
    assert (await closing)["termination"]["rationale_code"] == "timeout"
    assert not api.engine.containers
    await ending


async def test_put_gets_or_creates(api: Api) -> None:
    first = await api.json("PUT", "/api/sessions/box", json={"labels": {"a": "b"}}, status=201)
    again = await api.json("PUT", "/api/sessions/box", json={})
    assert (first["id"], again["labels"]) == ("box", {"a": "b"})
    assert "handle" in first
    assert "handle" not in again
    body = await api.problem(400, "validation_error", "PUT", "/api/sessions/x", json={"id": "y"})
    assert "path" in body["detail"]


@pytest.mark.parametrize("name", ["box", "BOX"])
async def test_ids_are_unique_without_regard_to_case(api: Api, name: str) -> None:
    await api.session(id="box")
    await api.problem(409, "conflict", "POST", "/api/sessions", json={"id": name})


async def test_list_pages_newest_first(api: Api) -> None:
    made = [(await api.session(labels={"n": str(number)}))["id"] for number in range(3)]
    first = await api.json("GET", "/api/sessions?limit=2")
    assert [item["id"] for item in first["items"]] == [made[2], made[1]]
    rest = await api.json("GET", f"/api/sessions?limit=2&cursor={first['next']}")
    assert [item["id"] for item in rest["items"]] == [made[0]]
    assert rest["next"] is None
    found = await api.json("GET", "/api/sessions?label=n:1")
    assert [item["id"] for item in found["items"]] == [made[1]]
    await api.json("DELETE", f"/api/sessions/{made[0]}")
    active = await api.json("GET", "/api/sessions?status=active")
    assert [item["id"] for item in active["items"]] == [made[2], made[1]]
    for query, wanted in (
        ("status=live", [made[2], made[1]]),
        ("status=live&order=asc", [made[1], made[2]]),
        ("order=asc", made),
        ("order=desc", made[::-1]),
        ("status=ended", [made[0]]),
        ("status=paused", []),
    ):
        found = await api.json("GET", f"/api/sessions?{query}")
        assert [item["id"] for item in found["items"]] == wanted, query
    for query in ("order=up", "cursor=x", "status=gone"):
        await api.problem(400, "validation_error", "GET", f"/api/sessions?{query}")


async def test_a_page_holds_nobody_up_and_reads_no_other_sessions(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that few have are searched for in parts, and a page may end before it is full."""
    for number in range(6):
        await api.session(labels={"n": str(number)})
    monkeypatch.setattr(session_pages, "MOST_EXAMINED", 2)
    monkeypatch.setattr(finder, "_MOST_LOOKS", 2)
    looks = 0
    browse = api.plane.database.browse

    async def counting(function: Any) -> Any:
        nonlocal looks
        looks += 1
        return await browse(function)

    monkeypatch.setattr(api.plane.database, "browse", counting)
    first = await api.json("GET", "/api/sessions?label=n:0")
    assert (first["items"], looks) == ([], 2)
    rest = await api.json("GET", f"/api/sessions?label=n:0&cursor={first['next']}")
    assert [item["labels"] for item in rest["items"]] == [{"n": "0"}]
    assert rest["next"] is None
    # Live sessions are shown from memory: nothing but their keys is read.
    looks = 0
    page = await api.json("GET", "/api/sessions?limit=2")
    assert (len(page["items"]), looks) == (2, 1)


async def test_other_owners_sessions_do_not_exist(api: Api) -> None:
    session = await api.session(key=OPERATOR_KEY)
    path = f"/api/sessions/{session['id']}"
    assert (await api.json("GET", path, key=OPERATOR_KEY))["owner"] == "operator"
    assert (await api.json("GET", "/api/sessions", key=OTHER_KEY))["items"] == []
    for method, rest, body in [
        ("GET", "", None),
        ("DELETE", "", None),
        ("DELETE", "?purge=true", None),
        ("POST", "/exec", {"command": "ls"}),
        ("PUT", "/settings", {"settings": {"permission_level": "high"}}),
        ("GET", "/audit", None),
        ("GET", "/audit/export", None),
        ("GET", "/events", None),
        ("GET", "/processes", None),
        ("GET", "/files?path=a", None),
        ("POST", "/pause", {}),
        ("POST", "/handle", {}),
    ]:
        await api.problem(404, "not_found", method, path + rest, json=body, key=OTHER_KEY)
    await api.problem(
        409, "conflict", "POST", "/api/sessions", json={"id": session["id"]}, key=OTHER_KEY
    )
    assert (await api.json("GET", path))["status"] == "active"


async def test_pause_resume_complete_abort(api: Api) -> None:
    path = f"/api/sessions/{(await api.session())['id']}"
    assert (await api.json("POST", path + "/pause"))["status"] == "paused"
    await api.problem(409, "invalid_transition", "POST", path + "/pause")
    await api.problem(409, "invalid_transition", "POST", path + "/exec", json={"command": "ls"})
    assert (await api.json("POST", path + "/resume", json={}))["status"] == "active"
    assert (await api.json("POST", path + "/interrupt"))["status"] == "active"
    assert (await api.json("POST", path + "/complete"))["status"] == "completed"
    await api.problem(409, "invalid_transition", "POST", path + "/abort")
    other = f"/api/sessions/{(await api.session())['id']}"
    assert (await api.json("POST", other + "/abort"))["status"] == "aborted"


async def test_handle_rotation(api: Api) -> None:
    session = await api.session()
    path = f"/api/sessions/{session['id']}"
    assert (await api.json("GET", path, key=session["handle"]))["id"] == session["id"]
    new = (await api.json("POST", path + "/handle"))["handle"]
    await api.problem(401, "unauthorized", "GET", path, key=session["handle"])
    assert (await api.json("GET", path, key=new))["id"] == session["id"]


def timeless(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings without the deadlines, which each activity moves."""
    return {name: value for name, value in settings.items() if name != "deadlines"}


async def test_settings(api: Api) -> None:
    path = f"/api/sessions/{(await api.session())['id']}/settings"
    before = await api.json("GET", path)
    assert before["workspace"]["mode"] == "session"
    assert await api.json("PUT", path, json={"settings": {}}) == before
    changed = await api.json("PUT", path, json={"settings": {"permission_level": "high"}})
    assert timeless(changed) == {**timeless(before), "permission_level": "high"}


@each(
    ("body", "detail"),
    [
        ({}, "body.settings must be an object"),
        ({"settings": None}, "body.settings must be an object"),
        ({"settings": []}, "body.settings must be an object"),
        (
            {"settings": {"permission_level": None}},
            "settings.permission_level must be low|medium|high",
        ),
        (
            {"settings": {"permission_level": "LOW"}},
            "settings.permission_level must be low|medium|high",
        ),
        (
            {"settings": {"permission_level": ["low"]}},
            "settings.permission_level must be low|medium|high",
        ),
        ({"settings": {"workspace": "x"}}, "settings.workspace must be an object"),
        ({"settings": {"workspace": None}}, "settings.workspace must be an object"),
        ({"settings": {"workspace": []}}, "settings.workspace must be an object"),
        ({"settings": {}, "more": 1}, "more is not a known field"),
        (
            {"settings": {"permission_level": "high", "colour": 1}},
            "settings.colour is not a known field",
        ),
        (
            {"settings": {"workspace": {"size": 1}}},
            "settings.workspace.size is not a known field",
        ),
        (
            {"settings": {"workspace": {"root_dir": 1}}},
            "settings.workspace.root_dir must be a valid string",
        ),
    ],
)
async def test_bad_settings_change_nothing(api: Api, body: dict[str, Any], detail: str) -> None:
    path = f"/api/sessions/{(await api.session())['id']}/settings"
    before = await api.json("GET", path)
    problem = await api.problem(400, "validation_error", "PUT", path, json=body)
    assert problem["detail"] == detail
    assert await api.json("GET", path) == before


@pytest.mark.parametrize("more", [{}, {"permission_level": "low"}])
async def test_another_workspace_is_refused_on_record(api: Api, more: dict[str, str]) -> None:
    path = f"/api/sessions/{(await api.session(permission_level='medium'))['id']}"
    before = await api.json("GET", path + "/settings")
    for wish in ({"mode": "host"}, {"root_dir": "/etc"}, {"root_dir": ""}):
        body = {"settings": {**more, "workspace": wish}}
        problem = await api.problem(400, "validation_error", "PUT", path + "/settings", json=body)
        (name,) = wish
        assert problem["field"] == f"settings.workspace.{name}"
        assert problem["detail"].startswith(f"settings.workspace.{name} can't be changed")
        assert timeless(await api.json("GET", path + "/settings")) == timeless(before)
        found = await api.json("GET", path + "/audit?operation=session.settings")
        event = found["items"][-1]
        assert (event["decision"], event["args"]) == ("deny", {"workspace": wish})


async def test_settings_can_be_sent_back_as_they_came(api: Api) -> None:
    path = f"/api/sessions/{(await api.session(permission_level='high'))['id']}/settings"
    settings = await api.json("GET", path)
    answer = await api.json("PUT", path, json={"settings": settings})
    assert timeless(answer) == timeless(settings)
    settings["permission_level"] = "low"
    answer = await api.json("PUT", path, json={"settings": settings})
    assert timeless(answer) == timeless(settings)
    nothing = {"workspace": {"mode": None, "root_dir": None}}
    answer = await api.json("PUT", path, json={"settings": nothing})
    assert timeless(answer) == timeless(settings)


async def test_settings_of_an_unknown_session(api: Api) -> None:
    body = {"settings": {"permission_level": "low"}}
    await api.problem(404, "not_found", "PUT", "/api/sessions/none/settings", json=body)
    await api.problem(404, "not_found", "GET", "/api/sessions/none")


async def test_no_room(api: Api, plane: Any) -> None:
    api.engine.fail_next("create")
    await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json={})
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_labels_are_free_text(api: Api) -> None:
    text = 'Approved by Zoë, see #12: "only until Friday", 50 % = half'
    labels = {"Jira ticket (of the team)": text, "Größe": "x" * 1024, "k" * 128: ""}
    session = await api.session(labels=labels)
    assert session["labels"] == labels
    for name, value in labels.items():
        found = await api.json("GET", "/api/sessions", params={"label": f"{name}:{value}"})
        assert [each["id"] for each in found["items"]] == [session["id"]], name


@each("name", ["", "a:b", "a=b", "a\nb", "a\tb", "\x7f", "k" * 129])
async def test_labels_whose_names_would_be_ambiguous(api: Api, name: str) -> None:
    body = {"labels": {name: "x"}}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["field"].startswith("labels")
    assert (await api.json("GET", "/api/sessions"))["items"] == []
