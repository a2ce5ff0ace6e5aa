"""Another path of a workspace over HTTP: what is refused, shown and recorded, and who has it."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.settings.settings import Settings
from paddock import Paddock
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cases import each
from tests.support.cli import run_beside

MIB = 1024 * 1024
SESSIONS = "/api/sessions"
HOME = "/home/user"
LOW = Path(__file__).parents[2] / "orchestrator" / "rules" / "policy" / "levels" / "low.toml"


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    """One more level, which has its home in the workspace and reads a directory of the image."""
    text = LOW.read_text().replace("rank = 100", "rank = 110")
    text = text.replace("[confinement]", '[confinement]\nread = ["/srv/model", "/workspace/lib"]')
    text = text.replace('home = "/nonexistent"', 'home = "/workspace/home"')
    (tmp_path / "model.toml").write_text(
        f'{text}\n[variables]\nPYTHONPATH = "/workspace/lib:/usr/lib"\nTZ = "UTC"\n'
    )
    return settings.model_copy(update={"levels_dir": tmp_path})


def _told(api: Api) -> dict[str, Any]:
    """The configuration of the newest sandbox's agent."""
    assert api.agent.configuration is not None
    return api.agent.configuration


async def test_it_is_shown_recorded_and_told_to_the_agent(api: Api) -> None:
    shown = await api.session(id="moved", permission_level="low", workspace_path=HOME)
    assert shown["workspace_path"] == HOME
    assert (await api.json("GET", f"{SESSIONS}/moved"))["workspace_path"] == HOME
    (event,) = (await api.json("GET", f"{SESSIONS}/moved/audit?operation=session.create"))["items"]
    assert event["args"]["workspace_path"] == HOME
    assert _told(api)["workspace"] == HOME
    (container,) = await api.engine.list()
    targets = {bind.target for bind in api.engine.specs[container.id].binds}
    assert HOME in targets
    assert "/workspace" not in targets
    usual = await api.session(permission_level="low")
    assert usual["workspace_path"] == "/workspace"
    assert _told(api)["workspace"] == "/workspace"


async def test_a_level_s_paths_are_told_where_they_are(api: Api) -> None:
    await api.session(permission_level="model", workspace_path="/app")
    told = _told(api)
    assert told["home"] == "/app/home"
    assert told["variables"] == {"PYTHONPATH": "/app/lib:/usr/lib", "TZ": "UTC"}
    assert told["confinement"]["read"] == ["/srv/model", "/app/lib"]


@each(
    "members",
    [
        *({"workspace_path": path} for path in ("home", "/", "", "/etc", "/tmp/x", "/usr/work")),
        *({"workspace_path": path} for path in ("/workspace/a", "/a/../etc", "//a", 1, ["/a"])),
        {"workspace_path": "/srv", "permission_level": "model"},
        {"workspace_path": "/srv/model/deep", "permission_level": "model"},
        {"workspace_path": HOME, "consume": {"manifest_id": "m", "entries": []}},
    ],
)
async def test_what_is_no_place(api: Api, members: dict[str, Any]) -> None:
    body = {"id": "refused", **members}
    problem = await api.problem(400, "validation_error", "POST", SESSIONS, json=body)
    assert problem["field"] == "workspace_path", problem
    assert (await api.json("GET", SESSIONS))["items"] == []
    assert await api.engine.list() == []


async def test_a_volume_in_it_is_refused(api: Api) -> None:
    volume = {"name": "cache", "size_bytes": 16 * MIB}
    await api.json("POST", "/api/volumes", json=volume, status=201)
    for path in (HOME, f"{HOME}/cache", "/home"):
        body = {"workspace_path": HOME, "volumes": [{"name": "cache", "path": path}]}
        problem = await api.problem(400, "validation_error", "POST", SESSIONS, json=body)
        assert problem["field"] == "volumes"
        assert problem["detail"].endswith(f"overlaps with {HOME}")
    assert await api.engine.list() == []


async def test_a_level_that_has_the_path_is_refused_for_it(api: Api) -> None:
    await api.session(id="long", permission_level="low", workspace_path="/srv/model")
    body = {"settings": {"permission_level": "model"}}
    problem = await api.problem(
        400, "validation_error", "PUT", f"{SESSIONS}/long/settings", json=body
    )
    assert problem["field"] == "workspace_path"
    assert (await api.json("GET", f"{SESSIONS}/long"))["permission_level"] == "low"


async def test_children_have_the_parent_s(api: Api) -> None:
    await api.session(id="parent", permission_level="low", workspace_path=HOME)
    for workspace in ("own", "read-only"):
        child = await api.json(
            "POST", f"{SESSIONS}/parent/spawn", json={"workspace": workspace}, status=201
        )
        found = await api.json("GET", f"{SESSIONS}/{child['id']}")
        assert found["workspace_path"] == HOME
        assert _told(api)["workspace"] == HOME


async def test_requests_are_decided_by_it(api: Api) -> None:
    await api.session(id="moved", permission_level="low", workspace_path=HOME)
    path = f"{SESSIONS}/moved"
    refused = await api.problem(
        *(403, "permission_denied", "POST", f"{path}/exec"), json={"argv": ["cat", "/workspace/a"]}
    )
    assert refused["rule"] == "path-outside-workspace"
    assert refused["detail"].endswith(f"use a path under {HOME}")
    await api.problem(
        *(403, "permission_denied", "POST", f"{path}/files/mkdir"), json={"path": "/workspace/a"}
    )
    for asked, allow in ((f"{HOME}/a", True), ("/workspace/a", False)):
        body = {"session": "moved", "path": asked}
        assert (await api.json("POST", "/api/policies/explain", json=body))["allow"] is allow
        body = {"session": "moved", "command": f"cat {asked}"}
        assert (await api.json("POST", "/api/policies/explain", json=body))["allow"] is allow


async def test_the_client_and_the_command_line_have_it(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = str(api.server.make_url(""))
    async with Paddock(url, ADMIN_KEY) as paddock:
        session = await paddock.sessions.create(permission_level="low", workspace_path="/repo")
        assert session.info.workspace_path == "/repo"
    monkeypatch.setenv("PADDOCK_URL", url)
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    for words in (("sessions", "create"), ("run", "--keep")):
        name = words[0]
        options = ("--id", name, "--level", "low", "--workspace-path", "/testbed")
        command = ("--", "pwd") if name == "run" else ()
        ended = await run_beside(*words, *options, *command)
        assert ended.status == 0, ended
        assert (await api.json("GET", f"{SESSIONS}/{name}"))["workspace_path"] == "/testbed"
    shown = await run_beside("sessions", "show", "sessions")
    assert "/testbed" in shown.out
