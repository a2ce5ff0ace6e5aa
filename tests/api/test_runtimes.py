"""Runtimes of levels over HTTP: which the engine has, and what holds under each."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import EngineUnavailableError
from orchestrator.host.engine.base import EngineInfo
from orchestrator.host.engine.fake import FakeEngine
from orchestrator.rules.policy import levels
from orchestrator.settings.settings import Settings
from tests.api.conftest import ADMIN_KEY, Api
from tests.support.cli import run_beside

PACKAGED = Path(levels.__file__).with_name("levels")
# What gVisor tells: filters, but no listener of theirs, and no Landlock.
RUNSC: dict[str, Any] = {
    **{"landlock_abi": 0, "seccomp": False, "undisturbed": False, "mdwe": False},
}
# A kernel of its own, older than the host's.
KATA: dict[str, Any] = {"landlock_abi": 2, "mdwe": False}
WITHOUT = '["paths", "notification", "scopes"]'


def info(*runtimes: str) -> EngineInfo:
    return EngineInfo(
        *("fake", "2"),
        rootless=False,
        userns_remap=False,
        runtimes=runtimes,
        default_runtime="runc",
    )


def write_level(
    directory: Path, name: str, rank: int, runtime: str, without: str | None = None
) -> Path:
    """The packaged high at another rank and under a runtime, maybe without facilities."""
    text = (PACKAGED / "high.toml").read_text()
    text = text.replace("rank = 300", f'rank = {rank}\nruntime = "{runtime}"')
    if without is not None:
        text = text.replace("mounts = true", f"mounts = true\nwithout = {without}")
        text = text.replace("paths = false", "paths = false\nrecord_execs = false")
    path = directory / f"{name}.toml"
    path.write_text(text)
    return path


@pytest.fixture
def engine(engine: FakeEngine) -> FakeEngine:
    engine.described = info("runc", "crun", "runsc", "kata")
    return engine


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    write_level(tmp_path, "strict", 400, "runsc")
    write_level(tmp_path, "loose", 401, "runsc", WITHOUT)
    write_level(tmp_path, "guest", 402, "kata")
    return settings.model_copy(update={"levels_dir": tmp_path})


async def listed(api: Api) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in (await api.json("GET", "/api/policies"))["runtimes"]}


async def test_a_level_chooses_its_runtime(api: Api) -> None:
    for level, runtime in (("low", None), ("guest", "kata")):
        session = await api.session(permission_level=level)
        assert list(api.engine.specs.values())[-1].runtime == runtime
        shown = await api.json("GET", f"/api/sessions/{session['id']}")
        assert shown["runtime"] == (runtime or "runc")
    items = (await api.json("GET", "/api/policies"))["items"]
    assert {each["name"]: each["runtime"] for each in items} == {
        **dict.fromkeys(("low", "medium", "high")),
        **{"strict": "runsc", "loose": "runsc", "guest": "kata"},
    }


async def test_what_holds_under_each_is_known_from_its_latest_sandbox(api: Api) -> None:
    before = await listed(api)
    assert [(each["name"], each["usual"], each["levels"]) for each in before.values()] == [
        ("runc", True, ["low", "medium", "high"]),
        ("crun", False, []),
        ("kata", False, ["guest"]),
        ("runsc", False, ["strict", "loose"]),
    ]
    assert {each["facilities"] for each in before.values()} == {None}
    api.agents.said = KATA
    await api.session(permission_level="guest")
    found = (await listed(api))["kata"]["facilities"]
    assert {each["name"]: each["detail"] for each in found if not each["preferred"]} == {
        "truncation": "the system call filter (missing under the runtime kata)",
        "mdwe": "the system call filter (missing under the runtime kata)",
        "scopes": "the agent, which sends them; abstract sockets are not kept apart "
        "(missing under the runtime kata)",
    }
    assert (await listed(api))["runc"]["facilities"] is None


async def test_a_level_that_demands_what_its_runtime_lacks_is_refused(api: Api) -> None:
    api.agents.said = RUNSC
    body = {"id": "strict", "permission_level": "strict"}
    problem = await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
    assert problem["detail"] == (
        "level strict can't be enforced in a sandbox of this engine under its runtime runsc: needs "
        "Landlock version 1, but found none; needs seccomp filters with notification, which are "
        "missing. Use another `runtime`, in the level's file or in PADDOCK_RUNTIME, or a level "
        "whose `requires` goes `without` it"
    )
    assert api.engine.containers == {}
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_a_level_that_goes_without_says_so(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    api.agents.said = RUNSC
    session = await api.session(permission_level="loose")
    path = f"/api/sessions/{session['id']}"
    shown = await api.json("GET", path)
    assert shown["runtime"] == "runsc"
    missing = {each["name"]: each["detail"] for each in shown["facilities"] if not each["provided"]}
    gone = "nothing (missing under the runtime runsc): the level goes without it"
    assert missing == dict.fromkeys(("notification", "paths", "scopes"), gone)
    configured = api.agents.latest.configuration or {}
    assert configured["without"] == ["paths", "notification", "scopes"]
    said = (await run_beside("sessions", "show", session["id"])).out
    assert "goes without" in said
    assert "recorded executions, files that commands use, signals between commands" in said
    level = {each["name"]: each for each in (await api.json("GET", "/api/policies"))["items"]}
    assert level["loose"]["requires"]["without"] == ["paths", "notification", "scopes"]
    assert level["low"]["requires"]["without"] == []

    # A pack needs them all the same, and so does any other level.
    change = {"settings": {"permission_level": "strict"}}
    await api.problem(503, "engine_unavailable", "PUT", path + "/settings", json=change)


async def test_without_lists_everything_that_is_missing(api: Api, settings: Settings) -> None:
    """Signals are kept apart by Landlock or by notification."""
    assert settings.levels_dir is not None
    write_level(settings.levels_dir, "loose", 401, "runsc", '["paths", "notification"]')
    await api.plane.reload.look()
    api.agents.said = RUNSC
    body = {"permission_level": "loose"}
    problem = await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
    reason = "runsc: needs Landlock scopes or notification, to keep signals apart. "
    assert reason in problem["detail"]


async def test_a_runtime_that_the_engine_has_not_stops_the_start(
    settings: Settings, engine: FakeEngine
) -> None:
    engine.described = info("runc", "crun")
    told = r"guest\.toml:3: runtime: the engine has no runtime kata, only crun, runc$"
    with pytest.raises(ConfigError, match=told):
        await ControlPlane.open(settings, engine)
    unnamed = settings.model_copy(update={"levels_dir": None, "runtime": "kata"})
    told = "^PADDOCK_RUNTIME: the engine has no runtime kata, only crun, runc$"
    with pytest.raises(ConfigError, match=told):
        await ControlPlane.open(unnamed, engine)
    # The full name of a shim needs no configuration.
    shim = unnamed.model_copy(update={"runtime": "io.containerd.kata.v2"})
    await (await ControlPlane.open(shim, engine)).close()


async def test_a_runtime_that_the_engine_has_not_is_refused_when_files_change(
    api: Api, settings: Settings
) -> None:
    assert settings.levels_dir is not None
    path = write_level(settings.levels_dir, "guest", 402, "kata2")
    await api.plane.reload.look()
    told = "the engine has no runtime kata2, only crun, kata, runc, runsc"
    assert api.plane.reload.problems[path] == f"{path}:3: runtime: {told}"
    assert api.plane.levels["guest"].runtime == "kata"
    # The engine may have got it meanwhile.
    api.engine.described = info("runc", "kata2", "runsc")
    path.write_text(path.read_text() + "\n")
    await api.plane.reload.look()
    assert api.plane.reload.problems == {}
    assert api.plane.levels["guest"].runtime == "kata2"
    assert "kata2" in await listed(api)
    # One that does not answer still has those that it had.
    api.engine.fail_next("info", EngineUnavailableError("busy"))
    write_level(settings.levels_dir, "guest", 402, "kata3")
    await api.plane.reload.look()
    assert "has no runtime kata3" in api.plane.reload.problems[path]
