"""The memory over HTTP: which levels and whose keys, on record, and kept."""

import asyncio
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.settings.settings import Settings
from orchestrator.state.session_secrets import SessionSecrets
from orchestrator.work.memory import entries, memory_store
from orchestrator.work.memory import memory as module
from paddock import Paddock, PermissionDeniedError
from paddock.contract.memory import MOST_TEXT_BYTES
from tests.api.conftest import OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cli import run_beside

NOTE: dict[str, Any] = {"text": "The tests need PYTHONPATH=src.", "tags": ["build"]}
_DENIED = "tool not allowed for permission level"


async def box(api: Api, level: str, key: str = OPERATOR_KEY) -> str:
    session = await api.session(key=key, permission_level=level)
    return f"/api/sessions/{session['id']}/memory"


async def found(api: Api, path: str, query: str = "", **more: Any) -> list[str]:
    path = f"{path}?query={query}"
    return [each["text"] for each in (await api.json("GET", path, **more))["items"]]


async def test_high_writes_and_medium_finds(api: Api) -> None:
    high, medium = await box(api, "high"), await box(api, "medium")
    written = await api.json("POST", high, json=NOTE)
    assert (written["key"], written["kind"], written["tags"]) == ("operator", "note", ["build"])
    assert high == f"/api/sessions/{written['session']}/memory"
    for path in (high, medium):
        assert await found(api, path, "pythonpath") == [NOTE["text"]]
    assert await found(api, medium, "absent") == []
    events = (await api.json("GET", "/api/audit?operation=memory.write"))["items"]
    assert [each["decision"] for each in events] == ["allow"]
    assert NOTE["text"] not in str(events)


async def test_levels_refuse_on_record_and_nothing_is_written(api: Api) -> None:
    low, medium = await box(api, "low"), await box(api, "medium")
    await api.json("POST", "/api/memory", json=NOTE, key=OPERATOR_KEY)
    for path in (low, f"{low}/bootstrap"):
        problem = await api.problem(403, "permission_denied", "GET", path)
        assert problem["detail"] == f"{_DENIED} low: memory_search"
        assert problem["rule"] == "memory-level"
        assert NOTE["text"] not in str(problem)
    for path, level in ((low, "low"), (medium, "medium")):
        problem = await api.problem(403, "permission_denied", "POST", path, json={"text": "new"})
        assert problem["detail"] == f"{_DENIED} {level}: memory_write"
    assert await found(api, medium) == [NOTE["text"]]
    denied = (await api.json("GET", "/api/audit?decision=deny"))["items"]
    assert sorted(each["operation"] for each in denied) == [
        *["memory.search"] * 2,
        *["memory.write"] * 2,
    ]


@pytest.mark.parametrize("layer", ["rules", "service"])
async def test_either_layer_alone_refuses(
    api: Api, layer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    low = await box(api, "low")
    if layer == "rules":
        tiers = frozenset({"low", "medium", "high"})
        monkeypatch.setattr(module, "_READERS", tiers)
        monkeypatch.setattr(module, "_WRITERS", tiers)
    else:
        monkeypatch.setattr(module, "check_memory", lambda _level, _tool: None)
    await api.problem(403, "permission_denied", "GET", low)
    await api.problem(403, "permission_denied", "POST", low, json=NOTE)
    assert (await api.json("GET", "/api/memory"))["items"] == []


async def test_a_key_s_memory_is_its_own(api: Api) -> None:
    mine, theirs = await box(api, "high"), await box(api, "high", OTHER_KEY)
    written = await api.json("POST", mine, json=NOTE, key=OPERATOR_KEY)
    assert await found(api, theirs, "tests", key=OTHER_KEY) == []
    at = f"/api/memory/{written['id']}"
    for method, body in (("PUT", {"json": {"text": "x"}}), ("DELETE", {})):
        await api.problem(404, "not_found", method, at, key=OTHER_KEY, **body)
    for method, more in (("GET", {}), ("POST", {"json": NOTE})):
        path = "/api/memory?key=operator"
        await api.problem(403, "permission_denied", method, path, key=OTHER_KEY, **more)
    assert await found(api, mine, "tests") == [NOTE["text"]]
    assert (await api.json("GET", "/api/memory", key=OTHER_KEY))["items"] == []
    assert len((await api.json("GET", "/api/memory?key=operator"))["items"]) == 1


async def test_hosts_keep_it_in_order(api: Api) -> None:
    medium = await box(api, "medium")
    rule = {"text": "Run the tests.", "kind": "sop"}
    added = await api.json("POST", "/api/memory", json=rule, key=OPERATOR_KEY)
    await api.json("POST", "/api/memory?key=operator", json={**NOTE, "kind": "bootstrap"})
    begins = await api.json("GET", f"{medium}/bootstrap")
    assert [each["kind"] for each in begins["items"]] == ["sop", "bootstrap"]
    assert "Run the tests.\nmemory>>>\n" in begins["text"]
    at = f"/api/memory/{added['id']}"
    changed = await api.json("PUT", at, json={"text": "Run all tests."}, key=OPERATOR_KEY)
    assert (changed["kind"], changed["created_at"]) == ("note", added["created_at"])
    assert await found(api, medium, "run") == ["Run all tests."]
    first = await api.json("GET", "/api/memory?limit=1", key=OPERATOR_KEY)
    rest = await api.json("GET", f"/api/memory?cursor={first['next']}", key=OPERATOR_KEY)
    assert [each["text"] for each in rest["items"]] == ["Run all tests."]
    await api.json("DELETE", at, key=OPERATOR_KEY)
    assert await found(api, medium, "run") == []
    await api.problem(400, "validation_error", "POST", "/api/memory?key=nobody", json=NOTE)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "text"),
        ({"text": ""}, "text"),
        ({"text": "x" * (MOST_TEXT_BYTES + 1)}, "text"),
        ({"text": "a\0b"}, "text"),
        ({"text": "x", "namespace": "../x"}, "namespace"),
        ({"text": "x", "tags": ["t"] * 17}, "tags"),
        ({"text": "x", "kind": "sop"}, "kind"),
    ],
)
async def test_bad_notes_change_nothing(api: Api, body: dict[str, Any], field: str) -> None:
    high = await box(api, "high")
    problem = await api.problem(400, "validation_error", "POST", high, json=body)
    assert field in problem["detail"]
    assert await found(api, high) == []


async def test_no_secret_is_written(api: Api) -> None:
    secret = "canary-of-the-memory"
    session = await api.session(permission_level="high", secrets={"SECRET_TOKEN": secret})
    path = f"/api/sessions/{session['id']}/memory"
    for field, body in (
        ("text", {"text": f"it is {secret}"}),
        ("tags", {"text": "it", "tags": [secret]}),
        ("namespace", {"text": "it", "namespace": secret}),
    ):
        problem = await api.problem(400, "validation_error", "POST", path, json=body)
        assert problem["detail"].startswith(field)
    assert await found(api, path) == []
    assert await found(api, path, secret) == []
    assert secret not in str(await api.json("GET", "/api/audit"))


async def test_nothing_is_written_before_the_secrets_are_known(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = await box(api, "high")

    def unknown(_secrets: SessionSecrets) -> None:
        raise ConflictError("they are not known yet", reason="secrets_unknown")

    monkeypatch.setattr(SessionSecrets, "check_known", unknown)
    for method, more in (
        ("POST", {"json": {"text": "canary"}}),
        ("GET", {"params": {"query": "canary"}}),
        ("GET", {}),
    ):
        problem = await api.problem(409, "conflict", method, path, **more)
        assert problem["reason"] == "secrets_unknown"
    assert "canary" not in str(await api.json("GET", "/api/audit"))
    assert (await api.json("GET", "/api/memory"))["items"] == []


async def test_many_at_once_stay_below_the_maximum(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_store, "MOST_ENTRIES", 2)
    memory, host = api.plane.memory, Principal("operator", Role.OPERATOR)
    wanted = entries.Wanted("one of many", "default")
    adding = (memory.add(host, "operator", wanted) for _ in range(5))
    results = await asyncio.gather(*adding, return_exceptions=True)
    assert sum(isinstance(each, ConflictError) for each in results) == 3
    assert len(await memory.page("operator", None, None, 10)) == 2


async def test_a_change_does_not_bring_back_what_is_removed(api: Api) -> None:
    memory, host = api.plane.memory, Principal("operator", Role.OPERATOR)
    wanted = entries.Wanted("going", "default")
    for _ in range(5):
        one = await memory.add(host, "operator", wanted)
        await asyncio.gather(
            memory.remove(host, one.id),
            memory.change(host, one.id, wanted),
            return_exceptions=True,
        )
        assert await memory.page("operator", None, None, 10) == []


async def test_it_has_room_for_so_many(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_store, "MOST_ENTRIES", 2)
    high = await box(api, "high")
    for _ in range(2):
        await api.json("POST", high, json=NOTE)
    await api.problem(409, "conflict", "POST", high, json=NOTE)
    await api.problem(409, "conflict", "POST", "/api/memory", json=NOTE, key=OPERATOR_KEY)
    await api.json("POST", "/api/memory", json=NOTE, key=OTHER_KEY)
    assert entries.MOST_ENTRIES == 2000


async def test_the_client_and_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    url = str(api.server.make_url("/"))
    async with Paddock(url, OPERATOR_KEY) as paddock:
        async with await paddock.sessions.create(permission_level="high") as session:
            await session.memory.write("a note", tags=["t"])
            (one,) = await session.memory.search("note")
            assert (one.session, one.tags) == (session.id, ["t"])
        async with await paddock.sessions.create(permission_level="low") as session:
            with pytest.raises(PermissionDeniedError):
                await session.memory.bootstrap()
        changed = await paddock.memory.change(one.id, "another", kind="sop")
        assert changed.session is None
        assert [each.session for each in (await paddock.memory.list()).items] == [None]
    monkeypatch.setenv("PADDOCK_URL", url)
    monkeypatch.setenv("PADDOCK_KEY", OPERATOR_KEY)
    assert "another" in (await run_beside("memory", "list")).out
    assert (await run_beside("memory", "add", "third", "--tag", "x")).status == 0
    assert (await run_beside("memory", "edit", one.id, "fourth", "--json")).status == 0
    assert (await run_beside("memory", "remove", one.id)).status == 0
    assert "fourth" not in (await run_beside("memory", "list")).out


async def test_it_outlives_a_restart(settings: Settings, engine: FakeEngine) -> None:
    for count in (0, 1):
        plane = await ControlPlane.open(settings, engine)
        found_there = await plane.memory.page(None, None, None, 10)
        assert len(found_there) == count
        if not count:
            host = Principal("operator", Role.OPERATOR)
            await plane.memory.add(host, "operator", entries.Wanted("kept", "default"))
        await plane.close()
