"""An operator's level in real sandboxes, and sandboxes that can't enforce their level."""

import re
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.config_error import ConfigError
from orchestrator.ground.errors import (
    EngineUnavailableError,
    PermissionDeniedError,
    ValidationError,
)
from orchestrator.host.node.requirements import UnmetError
from orchestrator.state.requests import NewSession
from orchestrator.state.terms import Terms
from tests.support.box import TESTER, Box
from tests.support.leaks import NOTHING, left_behind
from tests.support.older_kernels import older_image
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

BUILD = Path(__file__).parents[2] / "examples" / "levels" / "build.toml"


@pytest.fixture(scope="module")
def lesser_image(sandbox_image: str) -> Iterator[str]:
    """The sandbox image with an agent that finds no Landlock, as behind some runtimes."""
    with older_image(sandbox_image, ("paths",)) as image:
        yield image


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, lesser_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    levels_dir = tmp_path_factory.mktemp("levels")
    shutil.copy(BUILD, levels_dir)
    async with opened(image=sandbox_image, images=(lesser_image,), levels_dir=levels_dir) as plane:
        yield plane


def build_file(plane: ControlPlane) -> Path:
    assert plane.settings.levels_dir is not None
    return plane.settings.levels_dir / "build.toml"


async def change(box: Box, level: str) -> None:
    await box.plane.sessions.changes.set_level(TESTER, box.session, level, {})


async def test_a_session_at_the_operators_level(plane: ControlPlane) -> None:
    box = await Box.create(plane, "build")
    assert (await box.python("print(6 * 7)")).stdout == "42\n"
    assert (await box.run("git --version")).stdout.startswith("git version")
    await box.write("a.txt", b"x")
    assert (await box.run("ls")).stdout == "a.txt\n"
    modules = "import asyncio, ctypes, hashlib, sqlite3, ssl, subprocess, sys; "
    refused = modules + "subprocess.run(sys.argv[1:])"
    for argv in (["/bin/true"], ["sh", "-c", "/bin/true"]):
        done = await box.python(refused, *argv)
        assert "Permission denied" in done.stderr or "not permitted" in done.stderr, done
    for argv in (
        ["git", "init", "-q", "one"],
        [
            "git",
            "-C",
            "one",
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.com",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "first",
        ],
        ["git", "clone", "-q", "one", "two"],
        ["rm", "-rf", "one", "two"],
    ):
        done = await box.run(argv=argv)
        assert done.exit_code == 0, (argv, done.stderr)
    with pytest.raises(PermissionDeniedError, match="permission level build: make"):
        await box.run("make")
    with pytest.raises(PermissionDeniedError, match="path escapes workspace"):
        await box.run("cat /etc/shadow")
    limits = (await box.container()).limits
    assert (limits["cpus"], limits["memory_bytes"], limits["pids"]) == (2.0, 2 * 2**30, 256)
    assert box.session.sandbox is not None
    assert box.session.sandbox.network is None  # its way out is the proxy
    await box.close()


async def test_moving_to_it_and_away(plane: ControlPlane) -> None:
    box = await Box.create(plane, "low")
    await box.write("kept", b"x")
    with pytest.raises(PermissionDeniedError):
        await box.python("print()")
    await change(box, "build")
    assert (await box.python("print(open('kept').read())")).stdout == "x\n"
    running = await box.start(argv=["python3", "-c", "input()"], stdin_open=True)
    await change(box, "medium")
    done = await box.plane.executions.wait(box.session, running)
    assert done.reason == "level_changed"
    assert box.processes() == []
    events = [event["operation"] for event in await box.events()]
    # Medium is lower than build, so the change is recorded before commands are ended.
    assert events[-2:] == ["session.settings", "command.exit"]
    with pytest.raises(PermissionDeniedError):
        await box.python("print()")
    await box.close()


async def test_its_file_changes_while_sessions_run(plane: ControlPlane) -> None:
    box = await Box.create(plane, "build")
    path = build_file(plane)
    text = path.read_text()
    path.write_text(text.replace("cpus = 2.0", "cpus = 1.0").replace('"git",', ""))
    await plane.reload.look()
    assert (await box.container()).limits["cpus"] == 2.0
    assert (await box.run("git --version")).exit_code == 0
    await change(box, "build")
    assert (await box.container()).limits["cpus"] == 1.0
    with pytest.raises(PermissionDeniedError):
        await box.run("git --version")

    path.write_text(text.replace("rank = 250", "rank = 100"))
    await plane.reload.look()
    assert "build.toml:2: rank: 100 is also the rank of low" in plane.reload.problems[path]
    assert plane.levels["build"].rank == 250

    path.unlink()
    await plane.reload.look()
    assert (await box.python("print(1)")).exit_code == 0
    with pytest.raises(ValidationError, match=r"must be low\|medium\|high"):
        await change(box, "build")
    path.write_text(text)
    await plane.reload.look()
    await change(box, "build")
    assert (await box.run("git --version")).exit_code == 0
    await box.close()


async def test_a_sandbox_that_can_not_enforce_its_level_is_refused(
    plane: ControlPlane, lesser_image: str
) -> None:
    before = left_behind(plane.settings.state_dir)
    request = NewSession(id="refused", permission_level="low", terms=Terms(image=lesser_image))
    with pytest.raises(UnmetError, match="under its runtime runc: needs Landlock version 1"):
        await plane.sessions.create(TESTER, request)
    assert left_behind(plane.settings.state_dir) == before
    assert plane.sessions.registry.get("refused") is None
    # The id is free again.
    box = await Box.create(plane, "low", id="refused")
    assert (await box.run("ls")).exit_code == 0
    await box.close()
    assert left_behind(plane.settings.state_dir) == NOTHING


async def test_a_session_can_be_moved_to_a_level_that_needs_less(
    plane: ControlPlane, lesser_image: str
) -> None:
    text = build_file(plane).read_text()
    edits = {
        "rank = 250": "rank = 50",
        "landlock = 1": "landlock = 0",
        "paths = true": "paths = false",
    }
    for old, new in edits.items():
        assert old in text
        text = text.replace(old, new)
    text = re.sub(r"^(read|execute) = \[[^]]*\]\n", "", text, flags=re.MULTILINE)
    path = build_file(plane).with_name("loose.toml")
    path.write_text(text)
    await plane.reload.look()
    assert plane.reload.problems == {}
    box = await Box.create(plane, "loose", image=lesser_image)
    assert (await box.run("ls")).exit_code == 0
    with pytest.raises(UnmetError, match="needs Landlock version 1, but found none"):
        await change(box, "medium")
    # It continues at its level.
    assert box.session.level.name == "loose"
    assert (await box.run("ls")).exit_code == 0
    await box.close()
    path.unlink()


async def test_a_runtime_that_the_engine_has_not(sandbox_image: str) -> None:
    told = r"PADDOCK_RUNTIME: the engine has no runtime no-such-runtime, only .*\brunc\b"
    with pytest.raises(ConfigError, match=told):
        async with opened(image=sandbox_image, runtime="no-such-runtime"):
            pass


async def test_a_container_tells_what_a_sandbox_has(
    plane: ControlPlane, sandbox_image: str
) -> None:
    image = await plane.engine.image(sandbox_image)
    assert image is not None
    agent = await plane.sandboxes.agents.mounted(image)
    kernel = await plane.engine.kernel(sandbox_image, agent, None)
    assert kernel == (await plane.node.facts()).kernel
    with pytest.raises(EngineUnavailableError, match="has no runtime no-such-runtime"):
        await plane.engine.kernel(sandbox_image, agent, "no-such-runtime")
    assert left_behind(plane.settings.state_dir) == NOTHING


async def test_the_engines_own_runtime_by_its_name(sandbox_image: str) -> None:
    async with opened(image=sandbox_image, runtime="runc") as plane:
        box = await Box.create(plane, "low")
        assert (await box.run("ls")).exit_code == 0
        await box.close()
