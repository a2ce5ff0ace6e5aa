"""Templates over HTTP, in the client and on the command line: shown, refused, and in what order."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.settings.settings import Settings
from paddock import ConflictError
from paddock.cli.exits import Status
from paddock.cli.levels import complete_template
from paddock.client import Paddock
from tests.api.conftest import ADMIN_KEY, OPERATOR_KEY, OTHER_KEY, Api
from tests.support.cli import run_beside
from tests.support.keys import entry

TEMPLATES = "/api/templates"
SITE = """
description = "A page"
permission_level = "high"
setup = ["mkdir build"]
warm = 2
[files]
"src/index.html" = "<p>hello</p>"
"""
MINE: dict[str, Any] = {"key": OPERATOR_KEY}


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    directory = tmp_path / "templates"
    directory.mkdir()
    (directory / "site.toml").write_text(SITE)
    (directory / "gone.toml").write_text('permission_level = "gone"')
    assert settings.keys_file is not None
    keys = entry("operator", OPERATOR_KEY, more='max_level = "medium"') + entry("other", OTHER_KEY)
    settings.keys_file.write_text(keys)
    return settings.model_copy(update={"templates_dir": directory})


async def begun(api: Api) -> list[str]:
    """Which templates a preparation was begun of."""
    found = (await api.json("GET", "/api/audit?operation=template.start"))["items"]
    return [each["args"]["template"] for each in found]


async def test_they_are_listed_and_shown(api: Api) -> None:
    listed = await api.json("GET", TEMPLATES, **MINE)
    gone, site = listed["items"]
    assert (site["name"], site["state"], site["description"]) == ("site", "unbuilt", "A page")
    assert (site["files"], site["setup"]) == (["src/index.html"], ["mkdir build"])
    assert (site["built_at"], site["size_bytes"], site["failure"]) == (None, None, None)
    assert (site["warm"], site["ready"], gone["warm"]) == (2, 0, 0)
    assert len(site["digest"]) == 64
    assert await api.json("GET", f"{TEMPLATES}/site", **MINE) == site
    assert (gone["state"], gone["digest"]) == ("failed", None)
    assert "permission_level must be" in gone["failure"]["error"]
    for method, path in (("GET", f"{TEMPLATES}/none"), ("POST", f"{TEMPLATES}/none/build")):
        await api.problem(404, "not_found", method, path, **MINE)
    handle = (await api.session())["handle"]
    await api.problem(403, "permission_denied", "GET", TEMPLATES, key=handle)
    await api.problem(403, "permission_denied", "POST", f"{TEMPLATES}/site/build", key=handle)


async def test_what_the_key_may_not_have_is_refused_before_anything_is_prepared(api: Api) -> None:
    above = {"json": {"template": "site"}, **MINE}
    problem = await api.problem(403, "permission_denied", "POST", "/api/sessions", **above)
    assert problem["rule"] == "key-max-level"
    for body, field in (
        ({"template": "none"}, "template"),
        ({"template": "site", "from_snapshot": "base"}, "template"),
        ({"template": "A b"}, "template"),
        ({"template": "site", "permission_level": "low", "image": "other:1"}, "image"),
    ):
        for method, path in (("POST", "/api/sessions"), ("PUT", "/api/sessions/box")):
            problem = await api.problem(400, "validation_error", method, path, json=body, **MINE)
            assert problem["field"] == field, body
    assert await begun(api) == []
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_a_changed_file_is_another_version(api: Api) -> None:
    before = await api.json("GET", f"{TEMPLATES}/site")
    directory = api.plane.settings.templates_dir
    assert directory is not None
    (directory / "site.toml").write_text(SITE.replace("hello", "hi"))
    (directory / "new.toml").write_text("")
    (directory / "gone.toml").unlink()
    await api.plane.reload.look()
    listed = (await api.json("GET", TEMPLATES))["items"]
    assert [each["name"] for each in listed] == ["new", "site"]
    assert listed[1]["digest"] != before["digest"]
    (directory / "site.toml").write_text("x = 1")
    await api.plane.reload.look()
    assert (await api.json("GET", f"{TEMPLATES}/site"))["digest"] == listed[1]["digest"]
    assert any("site.toml:1: x" in each for each in api.plane.reload.problems.values())


async def test_a_preparation_that_fails_leaves_nothing_and_says_why(api: Api) -> None:
    """The workspaces of these tests are directories, of which no snapshot can be taken."""
    build = f"{TEMPLATES}/site/build"
    problem = await api.problem(409, "conflict", "POST", build, **MINE)
    assert "PADDOCK_WORKSPACE_QUOTA=image" in problem["detail"]
    shown = await api.json("GET", f"{TEMPLATES}/site")
    assert shown["state"] == "failed"
    assert (shown["failure"]["error"], shown["failure"]["command"]) == (problem["detail"], None)
    assert api.plane.sessions.registry.live == []
    assert not api.engine.containers
    # It was no command that failed, so the next session tries again.
    body = {"template": "site"}
    await api.problem(409, "conflict", "POST", "/api/sessions", json=body, key=OTHER_KEY)
    assert await begun(api) == ["site", "site"]
    ends = (await api.json("GET", "/api/audit?operation=template.end"))["items"]
    assert [each["error"] for each in ends] == [problem["detail"]] * 2


async def test_the_client_and_the_command_line(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Paddock(f"http://127.0.0.1:{api.server.port}", ADMIN_KEY) as paddock:
        assert [each.name for each in await paddock.templates.list()] == ["gone", "site"]
        assert (await paddock.templates.get("site")).state == "unbuilt"
        with pytest.raises(ConflictError):
            await paddock.templates.build("site")
        with pytest.raises(ConflictError):
            await paddock.sessions.create(template="site")
        failed = (await paddock.templates.get("site")).failure
        assert failed is not None
    monkeypatch.setenv("PADDOCK_URL", f"http://127.0.0.1:{api.server.port}")
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    listed = await run_beside("templates", "list", "--format", "name,state")
    assert listed.out.split()[2:] == ["gone", "failed", "site", "failed"]
    assert "0 of 2" in (await run_beside("templates", "list")).out
    assert await asyncio.to_thread(complete_template, "s") == ["site"]
    shown = await run_beside("templates", "show", "site")
    assert ("mkdir build" in shown.out, failed.error[:40] in shown.out) == (True, True)
    for words in (
        ("templates", "build", "site"),
        ("run", "--template", "site", "--", "ls"),
        ("sessions", "create", "--template", "site"),
    ):
        ended = await run_beside(*words)
        assert ended.status == Status.FAILED, (words, ended)
        assert "PADDOCK_WORKSPACE_QUOTA=image" in ended.err, ended
