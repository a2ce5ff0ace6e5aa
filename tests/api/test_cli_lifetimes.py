"""Sessions on the command line: several at once, their time-outs, their ends, and `run` in one."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from paddock.cli.levels import complete_image, complete_session
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside
from tests.support.fake_agent import Play

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def environment(api: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))


async def view(api: Api, name: str) -> dict[str, Any]:
    return await api.json("GET", f"/api/sessions/{name}")


async def ok(*words: str) -> str:
    ended = await run_beside(*words)
    assert ended.status == 0, ended.err
    return ended.out


async def test_settings_are_shown_and_changed(api: Api) -> None:
    await api.session(id="web-1", permission_level="low")
    shown = json.loads(await ok("settings", "web-1", "--json"))
    assert (shown["permission_level"], shown["wall_timeout"]) == ("low", None)
    await ok("settings", "web-1", "--idle-timeout", "700", "--wall-timeout", "7000", "-l", "medium")
    after = json.loads(await ok("settings", "web-1", "--json"))
    assert (after["idle_timeout"], after["wall_timeout"]) == (700, 7000)
    assert after["permission_level"] == "medium"
    assert after["deadlines"]["wall_at"] in await ok("settings", "web-1")


async def test_several_are_extended_and_one_that_is_not_there_stops_none(api: Api) -> None:
    for name in ("web-1", "web-2"):
        await api.session(id=name, idle_timeout=60)
    ended = await run_beside("extend", "none", "web-1", "web-2", "--for", "5000")
    assert ended.status == 5
    for name in ("web-1", "web-2"):
        settings = await api.json("GET", f"/api/sessions/{name}/settings")
        assert settings["idle_timeout"] == 5000


async def test_several_are_paused_resumed_interrupted_and_ended(api: Api) -> None:
    names = ("web-1", "web-2")
    for name in names:
        await api.session(id=name)
    for verb, status in (
        *(("pause", "paused"), ("resume", "active"), ("interrupt", "active")),
        ("complete", "completed"),
    ):
        await ok("sessions", verb, *names)
        assert [(await view(api, name))["status"] for name in names] == [status] * 2, verb


async def test_those_of_a_label_or_all_are_closed_when_it_is_confirmed(api: Api) -> None:
    for name, team in (("a", "x"), ("b", "x"), ("c", "y")):
        await api.session(id=name, labels={"team": team})
    refused = await run_beside("sessions", "close", "--label", "team:x")
    assert (refused.status, "--yes" in refused.line) == (2, True)
    assert (await view(api, "a"))["status"] == "active"
    await ok("sessions", "close", "--label", "team:x", "--yes")
    statuses = [(await view(api, name))["status"] for name in "abc"]
    assert statuses == ["completed", "completed", "active"]
    for wrong in ((), ("c", "--all"), ("--all", "--label", "a:b")):
        assert (await run_beside("sessions", "close", *wrong)).status == 2
    await ok("sessions", "close", "--all", "-y", "--purge")
    assert (await view(api, "c"))["status"] == "completed"


async def test_a_new_handle_and_another_episode(api: Api) -> None:
    old = (await api.session(id="web-1"))["handle"]
    new = (await ok("sessions", "handle", "web-1")).strip()
    await api.problem(401, "unauthorized", "GET", "/api/sessions/web-1", key=old)
    assert (await api.json("GET", "/api/sessions/web-1", key=new))["id"] == "web-1"
    await ok("sessions", "episode", "web-1", "second")
    assert (await view(api, "web-1"))["episode_id"] == "second"
    await ok("sessions", "episode", "web-1")
    assert (await view(api, "web-1"))["episode_id"] is None


async def test_a_handle_explains_its_own_session(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    handle = (await api.session(id="web-1", permission_level="low"))["handle"]
    monkeypatch.setenv("PADDOCK_KEY", handle)
    words = ("--session", "web-1", "--json", "--", "curl", "x")
    explained = await run_beside("policies", "explain", *words)
    assert explained.status == 4
    assert json.loads(explained.out)["allow"] is False


async def test_run_has_a_name_labels_limits_and_an_input(api: Api, tmp_path: Path) -> None:
    (tmp_path / "input").write_bytes(b"from a file\n")
    options = ("--id", "web-1", "--label", "team=x", "--limits", "cpus=0.25")
    more = ("--limits", "memory_bytes=64MiB", "--stdin", str(tmp_path / "input"))
    api.agents.plays["cat"] = Play(b"read\n", holds=True)
    assert await ok("run", "-l", "high", *options, *more, "--", "cat") == "read\n"
    (agent,) = api.agents.by_run_dir.values()
    assert b"".join(agent.stdin.values()) == b"from a file\n"
    shown = await view(api, "web-1")
    assert (shown["labels"], shown["status"]) == ({"team": "x"}, "completed")
    assert (shown["limits"]["cpus"], shown["limits"]["memory_bytes"]) == (0.25, 64 * 2**20)
    assert Path(shown["workspace"]["root_dir"]).exists()
    for wrong in ("cpus", "cpus=x", "cpus=-1", "memory_bytes=1e9"):
        assert (await run_beside("run", "--limits", wrong, "--", "ls")).status == 2
    assert (await run_beside("run", "--stdin", "/absent", "--", "ls")).status == 1


async def test_any_operation_is_reached(api: Api, tmp_path: Path) -> None:
    body = tmp_path / "body.json"
    body.write_text('{"id": "web-1", "permission_level": "low"}')
    made = json.loads(await ok("api", "POST", "/api/sessions", "--body", f"@{body}"))
    assert made["permission_level"] == "low"
    listed = json.loads(await ok("api", "get", "/api/sessions", "--query", "status=active"))
    assert [each["id"] for each in listed["items"]] == ["web-1"]
    assert (await run_beside("api", "GET", "/api/sessions/none")).status == 5
    wrongs = (("PATCH", "/api"), ("GET", "api"), ("GET", "/a?b"), ("PUT", "/a", "-d", "{"))
    for wrong in wrongs:
        assert (await run_beside("api", *wrong)).status == 2


async def test_ids_and_images_are_completed(api: Api) -> None:
    for name in ("web-1", "web-2", "other"):
        await api.session(id=name)
    await api.json("DELETE", "/api/sessions/web-2")
    assert await asyncio.to_thread(complete_session, "web") == ["web-1"]
    assert await asyncio.to_thread(complete_image, "paddock/") == ["paddock/sandbox:latest"]
