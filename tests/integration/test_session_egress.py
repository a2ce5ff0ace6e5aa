"""The rules of one session's way out, changed while it runs."""

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestServer

from api.app import create_app
from orchestrator.control_plane import ControlPlane
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.session_rules import Narrowing
from orchestrator.state.requests import NewSession
from tests.integration.test_egress import until_closed
from tests.support.box import TESTER, Box
from tests.support.cli import run_beside
from tests.support.egress import Endless, Names, NamesResolver, Web, hello, level_with, web
from tests.support.plane import opened
from tests.support.server import ROOT, serving
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = Names()
HOSTS = ("allowed.example", "second.example", "other.example")
FETCH = ["curl", "-sS", "--max-time", "20"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Web]:
    async with web(hello()) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endless() -> AsyncIterator[Endless]:
    async with web(Endless()) as served:
        yield served


@pytest.fixture(scope="module")
def levels(server: Web, endless: Endless, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Levels that allow all hosts but the last: `out` is like medium, and `free` like high."""
    NAMES.answers = {host: [["127.0.0.1"]] for host in HOSTS}
    directory = tmp_path_factory.mktemp("levels")
    rules = "".join(
        f'\n[[egress.allow]]\nhost = "{host}"\nports = [{server.port}, {endless.port}]\n'
        for host in HOSTS[:-1]
    )
    (directory / "out.toml").write_text(level_with(rules))
    (directory / "free.toml").write_text(level_with(rules, "high", 310))
    return directory


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str, levels: Path) -> AsyncIterator[ControlPlane]:
    async with opened(
        resolver=NamesResolver(NAMES), image=sandbox_image, levels_dir=levels
    ) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(plane: ControlPlane) -> AsyncIterator[str]:
    async with TestServer(create_app(plane)) as served:
        yield f"http://127.0.0.1:{served.port}"


async def test_a_denied_host_is_drafted_applied_and_then_reached(
    plane: ControlPlane, url: str, server: Web
) -> None:
    session, handle, _ = await plane.sessions.create(TESTER, NewSession(permission_level="out"))
    box, key = Box(plane, session), plane.settings.state_dir / "admin.key"
    remote = ("--url", url, "--key", key.read_text().strip())
    fetch = f"curl -sS http://other.example:{server.port}/"
    before = server.connections
    assert "Rule: not-listed" in (await box.run(fetch)).stdout

    drafts = await run_beside("egress", "drafts", session.id, *remote)
    assert f"other.example:{server.port}" in drafts.out
    assert (await run_beside("egress", "drafts", session.id, "-q", *remote)).out == "1\n"
    # The agent can't allow it to itself.
    own = await run_beside("egress", "allow", session.id, "--draft", "1", *remote[:3], handle)
    assert own.status == 4
    assert "Rule: not-listed" in (await box.run(fetch)).stdout
    assert server.connections == before

    allowed = await run_beside("egress", "allow", session.id, "--draft", "1", *remote)
    assert allowed.status == 0, allowed.err
    assert (await box.run(fetch)).stdout == "hello\n"
    denied = await run_beside("egress", "deny", session.id, "other.example", *remote)
    assert denied.status == 0, denied.err
    assert "Rule: also: deny other.example" in (await box.run(fetch)).stdout
    assert server.connections == before + 1


async def test_a_narrowing_at_creation_holds(plane: ControlPlane, server: Web) -> None:
    only = {"allow": [{"host": "allowed.example", "ports": [server.port]}]}
    box = await Box.create(plane, "free", egress=only)
    before = server.connections
    said = await box.bash(
        f"curl -sS http://allowed.example:{server.port}/ http://second.example:{server.port}/; "
        f"curl -sS https://second.example:{server.port}/"
    )
    assert said.stdout.startswith("hello\n")
    assert "Rule: only: not-listed" in said.stdout
    assert "403" in said.stderr
    assert server.connections == before + 1


async def test_a_narrowing_cuts_a_running_transfer(
    plane: ControlPlane, endless: Endless, server: Web
) -> None:
    box = await Box.create(plane, "out")
    commands = [
        await box.start(
            argv=[*FETCH, "--limit-rate", "1000", f"http://{host}:{endless.port}/"], background=True
        )
        for host in HOSTS[:-1]
    ]
    await until(lambda: endless.open == 2)
    narrowing = Narrowing(None, (Rule("allowed.example"),))
    await plane.egress.change(TESTER, box.session, narrowing, None)
    await until(lambda: endless.open == 1)
    (closed,) = await until_closed(box, 1)
    assert (closed["args"]["host"], closed["error"]) == ("allowed.example", "cut")
    said = await box.run(f"curl -sS http://second.example:{server.port}/")
    assert said.stdout == "hello\n"
    assert endless.open == 1
    for command in commands:
        await box.cancel(command)
    await until(lambda: endless.open == 0)


async def test_after_a_kill_rules_hold_and_open_connections_are_told(
    sandbox_image: str, levels: Path, server: Web, endless: Endless, tmp_path: Path
) -> None:
    settings = {
        "PADDOCK_IMAGE": sandbox_image,
        "PADDOCK_LEVELS_DIR": str(levels),
        "KNOWN_NAMES": " ".join(HOSTS),
    }
    interpreter, module = Path(sys.executable), "tests.support.known_names"
    async with serving(tmp_path / "state", interpreter, ROOT, module, **settings) as running:
        body: dict[str, Any] = {
            "id": "kept",
            "permission_level": "out",
            "egress": {"deny": [{"host": "second.example"}]},
        }
        await running.ok("POST", "/api/sessions", body)
        also = {"also": {"allow": [{"host": "more.example"}]}}
        before = await running.ok("PUT", "/api/sessions/kept/egress", also)
        url = f"http://allowed.example:{endless.port}/"
        fetch = {"argv": ["curl", "-sS", "--limit-rate", "100k", url], "background": True}
        await running.ok("POST", "/api/sessions/kept/exec", fetch)
        await until(lambda: endless.open == 1)
        await running.kill()
        await until(lambda: endless.open == 0)
        await running.start()
        after = await running.ok("GET", "/api/sessions/kept/egress")
        assert {**after, "used": None} == {**before, "used": None}
        assert after["used"]["connections"] == 0
        told = await running.ok("GET", "/api/sessions/kept/audit?operation=egress.close")
        (lost,) = told["items"]
        requested = await running.ok("GET", "/api/sessions/kept/audit?operation=egress.request")
        (opened_,) = requested["items"]
        assert lost["args"]["connection_id"] == opened_["args"]["connection_id"]
        assert "the control plane ended" in lost["error"]
        for host, said in (("allowed", "hello\n"), ("second", "Rule: only: deny second.example")):
            fetch = {"argv": [*FETCH, f"http://{host}.example:{server.port}/"]}
            outcome = await running.ok("POST", "/api/sessions/kept/exec", fetch)
            assert said in outcome["stdout"], outcome
        await running.ok("DELETE", "/api/sessions/kept?purge=true")
