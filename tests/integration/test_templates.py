"""Templates with the real engine: built once, cached, rebuilt, and gone after a crash."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientError

from orchestrator.control_plane import ControlPlane
from orchestrator.ground.errors import ConflictError
from orchestrator.ground.events import SYSTEM_KEY
from orchestrator.operate.templates.preparation import PREPARER
from orchestrator.operate.templates.request import preparing
from orchestrator.operate.templates.templates import ShownTemplate
from orchestrator.record.audit import query
from orchestrator.rules.access.keys import Principal, Role
from orchestrator.rules.templates.template import Template
from orchestrator.state.requests import NewSession
from tests.support.box import TESTER, Box
from tests.support.leaks import NO_WORKSPACES, workspaces_left
from tests.support.limits import PROGRAM_SECONDS
from tests.support.new_session import new_session
from tests.support.plane import opened, running, state
from tests.support.server import leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

SITE = """
permission_level = "high"
setup = ["cd src && cp index.html copy.html | cat", "echo $COLOUR > colour"]
env = {COLOUR = "green"}
[files]
"src/index.html" = "<p>hello</p>"
"""
BROKEN = """
permission_level = "low"
setup = ["mkdir made", "ls made missing", "mkdir later"]
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("templates")
    (found / "site.toml").write_text(SITE)
    (found / "broken.toml").write_text(BROKEN)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str, directory: Path) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image, templates_dir=directory) as plane:
        yield plane
        for each in await kept(plane):
            await plane.named_snapshots.remove(PREPARER, PREPARER.name, each)


async def kept(plane: ControlPlane) -> list[str]:
    """The ids of the snapshots of templates."""
    found = await plane.named_snapshots.page(PREPARER.name, None, ("", ""), 100)
    return [each.snapshot.id for each in found]


async def box(plane: ControlPlane, template: str, **members: Any) -> Box:
    request = await plane.templates.prepared(TESTER, template, new_session(**members))
    registered = await plane.sessions.create(TESTER, request)
    return Box(plane, registered.session)


async def started(plane: ControlPlane, template: str) -> list[dict[str, Any]]:
    found = await query.events(plane.database, SYSTEM_KEY, operation="template.start", limit=100)
    return [each for each in found if each["args"]["template"] == template]


async def test_sessions_begin_as_it_and_it_is_built_once(
    plane: ControlPlane, directory: Path
) -> None:
    before = await plane.templates.show("site")
    assert (before.state, before.snapshot) == ("unbuilt", None)
    one, two = await asyncio.gather(box(plane, "site"), box(plane, "site", permission_level="low"))
    assert len(await started(plane, "site")) == 1
    assert (one.session.level.name, two.session.level.name) == ("high", "low")
    for each in (one, two):
        assert (await each.run(argv=["cat", "src/copy.html"])).stdout == "<p>hello</p>"
        assert (await each.run(argv=["cat", "colour"])).stdout == "green\n"
    assert (await one.bash("echo $COLOUR; echo other > colour")).stdout == "green\n"
    assert (await two.run(argv=["cat", "colour"])).stdout == "green\n"
    built = await plane.templates.show("site")
    assert (built.state, built.failure) == ("built", None)
    assert built.snapshot is not None
    (created,) = await query.events(
        plane.database, one.session.key, operation="session.create", limit=1
    )
    assert created["args"]["snapshot"]["sha256"] == built.snapshot.sha256
    # Nothing is left of the session that has prepared it, whose record says what it did.
    assert {session.owner for session in plane.sessions.registry.live} == {TESTER.name}
    commands = await query.events(
        plane.database, built.snapshot.session_key, operation="command.start", limit=10
    )
    assert len(commands) == 2
    for each in (one, two):
        await each.close()


async def test_it_is_built_again_when_its_file_changes(
    plane: ControlPlane, directory: Path
) -> None:
    await plane.templates.build(TESTER, "site")
    old = await kept(plane)
    (directory / "site.toml").write_text(SITE.replace("hello", "changed"))
    await plane.reload.look()
    stale = await plane.templates.show("site")
    assert stale.state == "stale"
    assert stale.snapshot is not None
    begun = await box(plane, "site")
    assert (await begun.run(argv=["cat", "src/copy.html"])).stdout == "<p>changed</p>"
    assert (await plane.templates.show("site")).state == "built"
    assert not set(old) & set(await kept(plane))
    await begun.close()


async def test_a_failing_command_shows_what_it_printed(plane: ControlPlane) -> None:
    with pytest.raises(ConflictError) as refused:
        await plane.templates.build(TESTER, "broken")
    assert "'ls made missing' ended with exit code" in refused.value.detail
    assert "No such file" in refused.value.detail
    shown: ShownTemplate = await plane.templates.show("broken")
    assert shown.state == "failed"
    assert shown.failure is not None
    assert (shown.failure.command, shown.failure.exit_code) == ("ls made missing", 2)
    assert "missing" in shown.failure.output
    # A session does not try again, a person does.
    tried = len(await started(plane, "broken"))
    with pytest.raises(ConflictError, match="paddock templates build broken"):
        await plane.templates.prepared(TESTER, "broken", NewSession())
    assert len(await started(plane, "broken")) == tried
    with pytest.raises(ConflictError, match="exit code"):
        await plane.templates.build(TESTER, "broken")
    assert len(await started(plane, "broken")) == tried + 1
    ends = await query.events(plane.database, SYSTEM_KEY, operation="template.end", limit=100)
    assert "exit code" in [each for each in ends if each["error"]][-1]["error"]
    assert not [each for each in plane.sessions.registry.live if each.owner == PREPARER.name]


async def test_a_refused_command_is_no_refusal_of_the_request(
    plane: ControlPlane, directory: Path
) -> None:
    (directory / "refused.toml").write_text('permission_level = "low"\nsetup = ["curl x | cat"]')
    await plane.reload.look()
    with pytest.raises(ConflictError, match=r"'curl x \| cat' was refused: "):
        await plane.templates.prepared(TESTER, "refused", NewSession())
    shown = await plane.templates.show("refused")
    assert shown.failure is not None
    assert (shown.failure.command, shown.failure.exit_code) == ("curl x | cat", None)


async def test_any_key_has_them_within_its_own_quota(plane: ControlPlane) -> None:
    ci = Principal("ci", Role.OPERATOR)
    request = await plane.templates.prepared(ci, "site", NewSession())
    begun = (await plane.sessions.create(ci, request)).session
    assert (begun.owner, begun.workspace.owner) == ("ci", "ci")
    await plane.sessions.close(ci, begun, purge=True)


async def test_what_a_crash_left_is_removed_at_the_next_start(
    sandbox_image: str, directory: Path
) -> None:
    settings = {"image": sandbox_image, "templates_dir": directory}
    with state(**settings) as checked:
        async with running(checked) as plane:
            request = preparing(Template("site", "0"), "low", sandbox_image, 600)
            live = await plane.sessions.create(PREPARER, request)
            ended = await plane.sessions.create(PREPARER, request)
            await plane.sessions.close(PREPARER, ended.session, purge=False)
            assert live.session.live
        async with running(checked) as plane:
            assert not plane.sessions.registry.live
            shown = await plane.templates.show("site")
            assert shown.state == "unbuilt"


async def test_a_kill_in_the_middle_leaves_nothing(sandbox_image: str, tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text('permission_level = "high"\nsetup = ["sleep 1000"]')
    settings = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_TEMPLATES_DIR": str(tmp_path)}
    async with leaving_nothing(**settings) as server:
        async with server.client.get("/api/events") as events:
            body = {"template": "slow"}
            asking = asyncio.create_task(server.call("POST", "/api/sessions", body))
            async with asyncio.timeout(PROGRAM_SECONDS):
                async for line in events.content:
                    if b'"command.start"' in line:
                        break
        await server.kill()
        with pytest.raises(ClientError):
            await asking
        await server.start()
        assert (await server.ok("GET", "/api/sessions"))["items"][0]["status"] == "completed"
        shown = await server.ok("GET", "/api/templates/slow")
        assert (shown["state"], shown["failure"]) == ("unbuilt", None)
        assert workspaces_left(server.state_dir) == NO_WORKSPACES
