"""Levels of the operator over HTTP, and levels that can't be enforced."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orchestrator.ground.errors import ValidationError
from orchestrator.host.node.kernel import kernel_facts
from orchestrator.record.audit import query
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.policy import levels
from orchestrator.settings.settings import Settings
from orchestrator.state.requests import NewSession
from paddock.cli.levels import complete_level
from sandbox_agent.decide.facilities import in_force
from tests.api.conftest import ADMIN_KEY, Api

PACKAGED = Path(levels.__file__).with_name("levels")
FOUR = "low|medium|build|high"
RUNTIME = "io.containerd.runsc.v1"
TESTER = Principal("test", Role.ADMIN)


def level_file(directory: Path, name: str, *edits: tuple[str, str]) -> Path:
    """A copy of the packaged low under another name."""
    text = (PACKAGED / "low.toml").read_text()
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    path = directory / f"{name}.toml"
    path.write_text(text)
    return path


@pytest.fixture
def settings(settings: Settings, tmp_path: Path) -> Settings:
    build = (
        ("rank = 100", "rank = 250"),
        ('"pwd", "ls",', '"pwd", "ls", "python3",'),
        ("memory_bytes = 268_435_456", "memory_bytes = 536_870_912"),
    )
    level_file(tmp_path, "build", *build)
    return settings.model_copy(update={"levels_dir": tmp_path, "runtime": RUNTIME})


async def test_it_is_listed_and_used(api: Api) -> None:
    listed = (await api.json("GET", "/api/policies"))["items"]
    assert [level["name"] for level in listed] == FOUR.split("|")
    build = listed[2]
    assert (build["rank"], build["risk_tier"], build["noexec"]) == (250, "low", True)
    assert build["requires"] == {
        **{"landlock": 1, "seccomp": True, "mounts": True, "quota": False},
        "without": [],
    }
    assert build["confinement"]["paths"] is True

    session = await api.session(permission_level="build")
    path = f"/api/sessions/{session['id']}"
    assert session["permission_level"] == "build"
    assert session["limits"]["memory_bytes"] == 512 * 2**20
    answer = await api.json("POST", path + "/exec", json={"argv": ["python3", "-c", "any;thing"]})
    assert answer["exit_code"] == 0
    await api.problem(403, "permission_denied", "POST", path + "/exec", json={"command": "curl x"})
    explain = {"session": session["id"], "command": "python3 x.py"}
    assert (await api.json("POST", "/api/policies/explain", json=explain))["allow"] is True
    metrics = await (await api.call("GET", "/metrics")).text()
    assert 'paddock_sessions{level="build",status="active"} 1.0' in metrics
    assert 'paddock_session_create_seconds_count{level="build"} 1.0' in metrics


async def test_a_shell_completes_it(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_URL", str(api.server.make_url("/")))
    monkeypatch.setenv("PADDOCK_KEY", ADMIN_KEY)
    assert await asyncio.to_thread(complete_level, "") == FOUR.split("|")
    assert await asyncio.to_thread(complete_level, "b") == ["build"]


async def test_sessions_move_to_it_and_away(api: Api) -> None:
    session = await api.session(permission_level="low")
    path = f"/api/sessions/{session['id']}"
    for level in ("build", "high", "build", "medium"):
        body = {"settings": {"permission_level": level}}
        answer = await api.json("PUT", path + "/settings", json=body)
        assert answer["permission_level"] == level
    done = {"argv": ["ls"], "permission_level": "build"}
    assert (await api.json("POST", path + "/exec", json=done))["exit_code"] == 0
    assert (await api.json("GET", path + "/settings"))["permission_level"] == "build"
    events = (await api.json("GET", path + "/audit?operation=session.settings"))["items"]
    assert [event["args"]["to"] for event in events] == [
        *("build", "high", "build", "medium"),
        "build",
    ]


@pytest.mark.parametrize("level", ["root", "Build", "build ", "", 5, True, ["build"], {"a": 1}])
async def test_other_names_are_refused_with_those_there_are(api: Api, level: Any) -> None:
    session = await api.session()
    path = f"/api/sessions/{session['id']}"
    before = (await api.json("GET", path + "/audit"))["items"]
    bodies: list[tuple[str, str, dict[str, Any], str]] = [
        ("POST", "/api/sessions", {"permission_level": level}, "permission_level"),
        ("PUT", "/api/sessions/x", {"permission_level": level}, "permission_level"),
        ("POST", path + "/exec", {"argv": ["ls"], "permission_level": level}, "permission_level"),
        ("POST", "/api/policies/explain", {"level": level, "command": "ls"}, "level"),
        (
            "PUT",
            path + "/settings",
            {"settings": {"permission_level": level}},
            "settings.permission_level",
        ),
    ]
    for method, where, body, field in bodies:
        problem = await api.problem(400, "validation_error", method, where, json=body)
        assert problem["detail"] == f"{field} must be {FOUR}"
    assert (await api.json("GET", path + "/audit"))["items"] == before
    assert len((await api.json("GET", "/api/sessions"))["items"]) == 1


async def test_a_level_that_is_removed_stays_with_its_sessions(
    api: Api, settings: Settings
) -> None:
    session = await api.session(permission_level="build")
    assert settings.levels_dir is not None
    (settings.levels_dir / "build.toml").unlink()
    await api.plane.reload.look()
    path = f"/api/sessions/{session['id']}"
    done = await api.json("POST", path + "/exec", json={"argv": ["python3"]})
    assert done["exit_code"] == 0
    assert (await api.json("GET", path))["permission_level"] == "build"
    explain = {"session": session["id"], "command": "python3 x.py"}
    assert (await api.json("POST", "/api/policies/explain", json=explain))["allow"] is True
    metrics = await (await api.call("GET", "/metrics")).text()
    assert 'paddock_sessions{level="build",status="active"} 1.0' in metrics
    body = {"permission_level": "build"}
    problem = await api.problem(400, "validation_error", "POST", "/api/sessions", json=body)
    assert problem["detail"] == "permission_level must be low|medium|high"
    listed = (await api.json("GET", "/api/policies"))["items"]
    assert [level["name"] for level in listed] == ["low", "medium", "high"]


async def test_a_level_that_goes_while_its_session_waits_for_its_turn(api: Api) -> None:
    with pytest.raises(ValidationError, match=r"permission_level must be low\|medium"):
        await api.plane.sessions.create(TESTER, NewSession(permission_level="gone"))
    await nothing_is_left(api)


# Levels that can't be enforced


async def nothing_is_left(api: Api) -> None:
    assert api.engine.containers == {}
    assert list((api.plane.settings.state_dir / "sandboxes").glob("*")) == []
    assert (await api.json("GET", "/api/sessions"))["items"] == []


async def test_what_the_host_lacks_is_told_before_anything_is_begun(
    api: Api, settings: Settings
) -> None:
    assert settings.levels_dir is not None
    edits = ("rank = 100", "rank = 900"), ("landlock = 1", "landlock = 999")
    level_file(settings.levels_dir, "future", *edits)
    await api.plane.reload.look()
    body = {"id": "new", "permission_level": "future"}
    problem = await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
    reason = "needs Landlock version 999, but found version "
    assert problem["detail"].startswith(f"level future can't be enforced on this host: {reason}")
    assert api.engine.calls.count("create") == 0
    await nothing_is_left(api)

    session = await api.session(id="new", permission_level="low")
    made = api.engine.calls.count("create")
    path = f"/api/sessions/{session['id']}"
    change = {"settings": {"permission_level": "future"}}
    await api.problem(503, "engine_unavailable", "PUT", path + "/settings", json=change)
    run = {"argv": ["ls"], "permission_level": "future"}
    await api.problem(503, "engine_unavailable", "POST", path + "/exec", json=run)
    assert api.engine.calls.count("create") == made
    assert (await api.json("POST", path + "/exec", json={"argv": ["ls"]}))["exit_code"] == 0
    assert (await api.json("GET", path))["permission_level"] == "low"

    ready = await api.json("GET", "/readyz")
    assert ready["status"] == "ready"
    check = ready["checks"]["level future"]
    assert (check["ok"], check["status"]) == (True, "warning")
    assert check["detail"].startswith(f"can't be enforced: {reason}")
    assert ready["checks"]["level low"]["status"] == "ok"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"landlock_abi": 0}, "needs Landlock version 1, but found none"),
        ({"seccomp": False}, "needs seccomp filters with notification, which are missing"),
    ],
)
async def test_what_the_sandbox_lacks_is_told_and_nothing_is_left(
    api: Api, said: dict[str, Any], reason: str
) -> None:
    api.agents.said = said
    body = {"id": "weak", "permission_level": "low"}
    problem = await api.problem(503, "engine_unavailable", "POST", "/api/sessions", json=body)
    assert problem["detail"] == (
        f"level low can't be enforced in a sandbox of this engine under its runtime {RUNTIME}: "
        f"{reason}. Use another `runtime`, in the level's file or in PADDOCK_RUNTIME, or a level "
        "whose `requires` goes `without` it"
    )
    await nothing_is_left(api)
    api.agents.said = {}
    session = await api.session(id="weak", permission_level="low")
    path = f"/api/sessions/{session['id']}"

    api.agents.said = said
    change = {"settings": {"permission_level": "medium"}}
    problem = await api.problem(503, "engine_unavailable", "PUT", path + "/settings", json=change)
    assert reason in problem["detail"]
    assert api.engine.containers == {}
    run = {"argv": ["ls"]}
    problem = await api.problem(502, "sandbox_unavailable", "POST", path + "/exec", json=run)
    assert "set the permission level again" in problem["detail"]
    api.agents.said = {}
    assert await api.json("PUT", path + "/settings", json=change)
    assert (await api.json("POST", path + "/exec", json=run))["exit_code"] == 0


@pytest.mark.parametrize(
    ("compiled", "detail"),
    [(True, "the guard in C"), (False, "the guard in Python: the image from which")],
)
async def test_which_guard_starts_commands_is_told(api: Api, compiled: bool, detail: str) -> None:
    api.agents.said = {"compiled_guard": compiled}
    session = await api.session(permission_level="low")
    shown = (await api.json("GET", f"/api/sessions/{session['id']}"))["facilities"]
    (guard,) = [each for each in shown if each["name"] == "guard"]
    assert (guard["preferred"], guard["provided"]) == (compiled, True)
    assert guard["detail"].startswith(detail)


async def test_the_means_in_force_are_told(api: Api) -> None:
    api.agents.said = {"landlock_abi": 2, "mdwe": False}
    whole = (await api.json("GET", "/api/policies"))["facilities"]
    assert [(each["name"], each["preferred"]) for each in whole] == [
        (means.facility.name, means.preferred) for means in in_force(kernel_facts().kernel)
    ]
    session = await api.session(permission_level="low")
    path = f"/api/sessions/{session['id']}"
    told = {each["name"]: each for each in (await api.json("GET", path))["facilities"]}
    assert told["mdwe"] == {
        "name": "mdwe",
        "decides": "writable code",
        "preferred": False,
        "provided": True,
        "detail": f"the system call filter (missing under the runtime {RUNTIME})",
    }
    assert told["truncation"]["detail"] == (
        f"the system call filter (missing under the runtime {RUNTIME})"
    )
    assert told["moves"] == {**told["moves"], "preferred": True, "detail": "Landlock"}
    assert "undisturbed" not in told  # it has no pack
    # Without scopes, the guard in C can't be used.
    assert told["guard"]["detail"].startswith("the guard in Python: the one in C takes no session")
    await api.call("DELETE", path)
    assert (await api.json("GET", path))["facilities"] is None


async def test_the_runtime_reaches_the_engine(api: Api) -> None:
    await api.session()
    (spec,) = api.engine.specs.values()
    assert spec.runtime == RUNTIME


async def test_an_edit_with_a_mistake_is_told_with_its_line(api: Api, settings: Settings) -> None:
    assert settings.levels_dir is not None
    path = level_file(settings.levels_dir, "build", ("rank = 100", "rank = 300"))
    await api.plane.reload.look()
    assert api.plane.reload.problems[path] == f"{path}:2: rank: 300 is also the rank of high"
    events = await query.events(api.plane.database, "system")
    assert events[-1]["error"] == api.plane.reload.problems[path]
    assert (await api.json("GET", "/api/policies"))["items"][2]["rank"] == 250
