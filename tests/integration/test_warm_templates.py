"""Sandboxes that wait for sessions of a template: as cold ones, renewed, and gone with it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.operate.templates.preparation import PREPARER
from orchestrator.record.audit import query
from tests.support.box import TESTER, Box
from tests.support.leaks import (
    NO_WORKSPACES,
    NONE_AHEAD,
    NOTHING,
    containers,
    left_behind,
    made_ahead,
    unmount_all,
    workspaces_left,
)
from tests.support.new_session import new_session
from tests.support.plane import opened
from tests.support.server import Server
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SITE = """
permission_level = "high"
setup = ["cd src && cp index.html copy.html && ln -s copy.html link", "chmod 640 src/copy.html"]
env = {COLOUR = "green"}
limits = {pids = 50, workspace_bytes = 67108864}
budget = {commands = 9}
tools = []
wall_timeout = 3000
warm = 2
[files]
"src/index.html" = "<p>hello</p>"
"""
# What a session sees of what it was given.
SEEN = (
    "id -u; env | sort; find . -printf '%P %u %g %m %s %l\\n' | sort; cat src/link; "
    "cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids/pids.max 2>/dev/null; "
    "df --output=size,target . ; awk '{print $5}' /proc/self/mountinfo | sort -u"
)


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("templates")
    (found / "site.toml").write_text(SITE)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str, directory: Path) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image, templates_dir=directory, warm_sandboxes=3) as plane:
        yield plane


async def ready(plane: ControlPlane, number: int) -> None:
    await until(lambda: plane.warm_templates.ready("site") == number)


async def box(plane: ControlPlane, start: str, **members: Any) -> Box:
    """A session of the template whose sandbox was started so."""
    request = await plane.templates.prepared(TESTER, "site", new_session(**members))
    made = Box(plane, (await plane.sessions.create(TESTER, request)).session)
    assert made.session.sandbox is not None
    assert made.session.sandbox.start == start
    return made


def ahead(plane: ControlPlane) -> list[str]:
    """The copies of snapshots that wait."""
    names = made_ahead(plane.settings.state_dir)["slots"]
    return [name for name in names if name.startswith("snap-")]


def waiting(plane: ControlPlane) -> set[str]:
    """The containers that wait for sessions of templates."""
    kept = [each for each in plane.pool._waiting if each.shape.files is not None]
    return {each.parts.plan.container_id or "" for each in kept}


async def given(box: Box) -> dict[str, Any]:
    """What a session has and shows, without what is its own."""
    seen = await box.bash(SEEN)
    assert seen.exit_code == 0
    own = {"id", "created_at", "last_activity_at", "sandbox", "commands", "budget", "deadlines"}
    shown = box.shown().model_dump(exclude=own)
    (created,) = await query.events(
        box.plane.database, box.session.key, operation="session.create", limit=1
    )
    return {
        "seen": seen.stdout.replace(str(box.uid), "UID").replace(box.session.id, "ID"),
        "shown": {name: each for name, each in shown.items() if box.session.id not in str(each)},
        "budget": box.session.budget.limits,
        "place": created["seq"],
        "recorded": {**created["args"], "id": "ID"},
    }


async def test_a_warm_session_is_as_a_cold_one(plane: ControlPlane) -> None:
    assert plane.warm_templates.ready("site") == 0
    built = await plane.templates.build(TESTER, "site")
    assert built.snapshot is not None
    await ready(plane, 2)
    assert len(ahead(plane)) == 2
    assert (await plane.templates.show("site")).template.warm == 2
    warm = await box(plane, "warm", id="warm-1")
    # One that waits has the template's limits, so this one can have none.
    cold = await box(plane, "cold", id="cold-1", limits={"pids": 49})
    found, expected = await given(warm), await given(cold)
    for name in found:
        assert str(found[name]) == re.sub(r"\b49\b", "50", str(expected[name])), name
    assert found["recorded"]["snapshot"]["sha256"] == built.snapshot.sha256
    assert "<p>hello</p>" in found["seen"]
    # Neither sees what the other writes, and a new one sees neither's.
    await warm.bash("echo mine > src/copy.html")
    await ready(plane, 2)
    other = await box(plane, "warm")
    for each in (cold, other):
        assert (await each.bash("cat src/link")).stdout == "<p>hello</p>"
    for each in (warm, cold, other):
        await each.close()
    await ready(plane, 2)


async def test_other_sessions_of_its_level_take_none_of_them(plane: ControlPlane) -> None:
    await ready(plane, 2)
    before = waiting(plane)
    plain = await Box.create(plane, "high")
    lower = await plane.templates.prepared(TESTER, "site", new_session(permission_level="low"))
    low = Box(plane, (await plane.sessions.create(TESTER, lower)).session)
    assert not before & {plain.container_id, low.container_id}
    assert (await low.run("cat src/copy.html")).stdout == "<p>hello</p>"
    for each in (plain, low):
        await each.close()
    await ready(plane, 2)


async def test_without_its_copy_the_session_begins_all_the_same(plane: ControlPlane) -> None:
    """And without a sandbox, too: either is only faster."""
    await ready(plane, 2)
    plane.named_snapshots.ahead.ready.clear()
    copied = await box(plane, "warm")
    assert (await copied.bash("cat src/link")).stdout == "<p>hello</p>"
    await copied.close()
    await ready(plane, 2)


async def test_another_version_has_its_own(plane: ControlPlane, directory: Path) -> None:
    await ready(plane, 2)
    before, files = waiting(plane), set(ahead(plane))
    (directory / "site.toml").write_text(SITE.replace("hello", "changed"))
    await plane.reload.look()
    await ready(plane, 0)
    await until(lambda: not files & set(ahead(plane)))
    await until(lambda: waiting(plane) == set())
    first = await box(plane, "cold")
    assert (await first.bash("cat src/link")).stdout == "<p>changed</p>"
    await ready(plane, 2)
    assert not before & waiting(plane)
    second = await box(plane, "warm")
    assert (await second.bash("cat src/link")).stdout == "<p>changed</p>"
    for each in (first, second):
        await each.close()


async def test_a_template_that_is_gone_has_none(plane: ControlPlane, directory: Path) -> None:
    await ready(plane, 2)
    (directory / "site.toml").unlink()
    await plane.reload.look()
    await ready(plane, 0)
    await until(lambda: ahead(plane) == [])
    await until(lambda: waiting(plane) == set())
    (kept,) = await plane.named_snapshots.page(PREPARER.name, None, ("", ""), 10)
    await plane.named_snapshots.remove(PREPARER, PREPARER.name, kept.snapshot.id)


async def server_ready(server: Server, number: int) -> None:
    text = ""
    while f'paddock_template_ready{{template="site"}} {number}.0' not in text:
        async with server.client.get("/metrics") as response:
            text = await response.text()


@asynccontextmanager
async def templated(image: str, directory: Path) -> AsyncIterator[Server]:
    """A server with the template; at its end, nothing that waited is left."""
    templates = directory / "templates"
    templates.mkdir()
    (templates / "site.toml").write_text(SITE)
    settings = {
        "PADDOCK_IMAGE": image,
        "PADDOCK_TEMPLATES_DIR": str(templates),
        "PADDOCK_WARM_SANDBOXES": "2",
        "PADDOCK_MIN_FREE_MEMORY_BYTES": "0",
        "PADDOCK_MIN_FREE_DISK_BYTES": "0",
    }
    server = Server(directory / "state", **settings)
    try:
        await server.start()
        yield server
        assert workspaces_left(server.state_dir) == NO_WORKSPACES
    finally:
        await server.stop()
        unmount_all(server.state_dir)
    assert made_ahead(server.state_dir) == NONE_AHEAD
    assert left_behind(server.state_dir) == NOTHING


async def test_a_kill_leaves_nothing_that_waited(sandbox_image: str, tmp_path: Path) -> None:
    async with templated(sandbox_image, tmp_path) as server:
        built = await server.ok("POST", "/api/templates/site/build", {})
        assert (built["warm"], built["state"]) == (2, "built")
        await server_ready(server, 2)
        waited, copies = containers(server.state_dir), made_ahead(server.state_dir)["slots"]
        made = await server.ok("POST", "/api/sessions", {"id": "one", "template": "site"})
        assert made["sandbox"]["start"] == "warm"
        await server.kill()
        await server.start()
        left = set(containers(server.state_dir)) & set(waited)
        assert left == {f"/paddock-{made['sandbox']['id']}"}
        assert not set(copies) & set(made_ahead(server.state_dir)["slots"])
        await server_ready(server, 2)
        assert (await server.ok("GET", "/api/templates"))["items"][0]["ready"] == 2
        shown = await server.ok("POST", "/api/sessions/one/exec", {"command": "cat src/link"})
        assert shown["stdout"] == "<p>hello</p>"
        await server.ok("DELETE", "/api/sessions/one?purge=true")
