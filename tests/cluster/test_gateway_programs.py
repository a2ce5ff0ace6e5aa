"""Real programs through a gateway: pages that reload, a kernel, a clone, SDKs, and the console.

All of them share two machines and one session, whose ports the gateway serves.
"""

import asyncio
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import ClientSession
from playwright.async_api import Browser, expect

from paddock import ConflictError, Paddock, Session
from paddock.client.faces import Async
from paddock.client.results import StreamedOutput
from scripts.cluster.building import Cluster
from tests.browser.conftest import browser
from tests.foreign.environments import installed
from tests.foreign.suites import PROGRAMS
from tests.integration.test_jupyter import SERVER, execute
from tests.support.applications import ENVIRONMENT, PLACE, install, npm_project
from tests.support.box import PATIENCE
from tests.support.console_page import PATIENCE_MS, load, opened
from tests.support.limits import PROGRAM_SECONDS

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.whole]
__all__ = ["browser"]

TOKEN = secrets.token_hex(16)
PICTURE = os.environ.get("PADDOCK_TEST_PICTURES")
E2B = """
from e2b import Sandbox, SandboxQuery
import uuid
mark = {"trial": uuid.uuid4().hex}
made = [Sandbox.create("high", timeout=300, metadata=mark) for _ in range(5)]
try:
    for each in made:
        assert each.commands.run("echo out").stdout == "out\\n"
    made[0].files.write("kept.txt", "text")
    snapshot = made[0].create_snapshot()
    again = Sandbox.create(snapshot.snapshot_id, timeout=300, metadata=mark)
    made.append(again)
    assert again.files.read("kept.txt") == "text"
    pages, found = Sandbox.list(query=SandboxQuery(metadata=mark), limit=2), []
    while pages.has_next:
        found += [each.sandbox_id for each in pages.next_items()]
    assert found == [each.sandbox_id for each in reversed(made)], found
    Sandbox.delete_snapshot(snapshot.snapshot_id)
finally:
    for each in made:
        assert each.kill()
print(len(found))
"""
# Of the trials against one control plane: templates, their files, tags and logs; signed addresses.
TRIALS = "template or alike or tags or build or signed"
SWEREX = """
import asyncio, pathlib, sys
from swerex.runtime.abstract import (
    BashAction, BashInterruptAction, Command, CreateBashSessionRequest, ReadFileRequest,
    UploadRequest, WriteFileRequest,
)
from swerex.runtime.remote import RemoteRuntime
async def main(url, handle):
    runtime = RemoteRuntime(host=url, port=None, auth_token=handle, timeout=60)
    assert (await runtime.is_alive()).is_alive
    await runtime.create_session(CreateBashSessionRequest())
    await runtime.run_in_session(BashAction(command="export WORD=kept; cd /tmp", timeout=60))
    said = await runtime.run_in_session(BashAction(command="echo $WORD in $PWD", timeout=60))
    assert (said.output.strip(), said.exit_code) == ("kept in /tmp", 0), said
    try:
        await runtime.run_in_session(BashAction(command="sleep 1000", timeout=0.5))
    except Exception as error:
        assert type(error).__name__ == "CommandTimeoutError", error
    else:
        raise AssertionError("it has not timed out")
    await runtime.run_in_session(BashInterruptAction())
    done = await runtime.execute(Command(command=["sh", "-c", "echo out; exit 3"]))
    assert (done.stdout, done.exit_code) == ("out\\n", 3), done
    await runtime.write_file(WriteFileRequest(path="rex/a.txt", content="text"))
    pathlib.Path("up").mkdir()
    pathlib.Path("up/b.txt").write_text("b" * 2**20)
    await runtime.upload(UploadRequest(source_path="up", target_path="rex/up"))
    for path, text in (("rex/a.txt", "text"), ("rex/up/b.txt", "b" * 2**20)):
        assert (await runtime.read_file(ReadFileRequest(path=path))).content == text
    await runtime.close()
asyncio.run(main(*sys.argv[1:]))
"""
MCP = """
import asyncio, sys
import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
async def main(url, handle):
    headers = {"Authorization": f"Bearer {handle}"}
    async with httpx2.AsyncClient(headers=headers, timeout=60) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            async with ClientSession(*streams[:2]) as session:
                await session.initialize()
                assert "exec" in {tool.name for tool in (await session.list_tools()).tools}
                done = await session.call_tool("exec", {"command": "echo by mcp"})
                print(done.content[0].text)
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def key(made_cluster: Cluster) -> str:
    return made_cluster.layout.admin_key.read_text().strip()


@pytest.fixture(scope="module")
def url(made_cluster: Cluster) -> str:
    return made_cluster.gateways()[0].url


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(url: str, key: str) -> AsyncIterator[Session[Async]]:
    async with Paddock(url, key) as paddock:
        made = await paddock.sessions.create(permission_level="high")
        yield made
        await made.close(purge=True)


@asynccontextmanager
async def served(
    session: Session[Async], port: int, *argv: str, ready: str, env: dict[str, str] | None = None
) -> AsyncIterator[Any]:
    """The opened port of a program that says when it listens."""
    command = await session.processes.start(argv=list(argv), env=env, merge=True)
    try:
        said = b""
        async with (
            asyncio.timeout(PATIENCE),
            aclosing(session.processes.follow(command.command_id)) as events,
        ):
            async for event in events:
                said += event.data if isinstance(event, StreamedOutput) else b""
                if ready.encode() in said:
                    break
            else:
                raise AssertionError(said)
        yield await session.ports.open(port)
    finally:
        await session.processes.signal(command.command_id, "KILL")


async def test_a_page_of_vite_is_replaced_while_it_is_open(
    session: Session[Async], browser: Browser, tmp_path: Path
) -> None:
    """By its WebSocket, through the gateway, with the program that the host has."""
    node = shutil.which("node")
    assert node is not None, "no node: `make node` installs it"
    project = npm_project("vite", tmp_path)
    shutil.copy(Path(node).resolve(), project / "node")
    await session.files.upload_dir(project, "vite")
    argv = ("sh", "-c", "cd vite && exec ./node node_modules/vite/bin/vite.js --port=5173")
    async with served(session, 5173, *argv, ready="Local:") as port:
        page = await browser.new_page()
        async with page.expect_console_message(lambda it: "connected." in it.text):
            await load(page, page.goto(port.host_link), page.get_by_text("said first"))
        await page.evaluate("window.kept = true")
        await session.files.write("vite/said.js", b'export const said = "said second";')
        await expect(page.locator("#said")).to_have_text("said second", timeout=PATIENCE_MS)
        assert await page.evaluate("window.kept")
        await page.close()


async def test_a_kernel_of_jupyter_answers(session: Session[Async], tmp_path: Path) -> None:
    await session.files.upload_dir(install("jupyter", tmp_path), PLACE)
    argv = (
        *("python3", "-c", SERVER, "--no-browser", "--ServerApp.ip=127.0.0.1"),
        *("--ServerApp.port=8888", f"--IdentityProvider.token={TOKEN}"),
    )
    async with (
        served(session, 8888, *argv, ready="it listens", env=ENVIRONMENT) as port,
        ClientSession(headers={"Authorization": f"token {TOKEN}"}) as client,
    ):
        link = port.link.rstrip("/")
        async with client.post(f"{link}/api/kernels", json={}) as answer:
            assert answer.status == 201, await answer.text()
            kernel = (await answer.json())["id"]
        address = f"{link}/api/kernels/{kernel}/channels?token={TOKEN}"
        async with client.ws_connect(address) as socket, asyncio.timeout(PATIENCE):
            await socket.send_json(execute("6 * 7"))
            while (message := await socket.receive_json())["msg_type"] != "execute_result":
                pass
        assert message["content"]["data"] == {"text/plain": "42"}


async def test_a_repository_is_cloned_from_a_port(session: Session[Async], tmp_path: Path) -> None:
    make = (
        "git init -q repo && cd repo && echo text > kept.txt && git add . && "
        "git -c user.name=a -c user.email=a@b.c commit -qm first && git update-server-info"
    )
    made = await session.exec(argv=["sh", "-c", make])
    assert made.exit_code == 0, made.stderr
    argv = ("python3", "-u", "-m", "http.server", "8123", "--bind", "127.0.0.1")
    async with served(session, 8123, *argv, ready="Serving") as port:
        done = await _run(
            "git", "clone", "-q", port.link.rstrip("/") + "/repo/.git", str(tmp_path / "clone")
        )
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "clone" / "kept.txt").read_text() == "text\n"


async def test_sessions_begin_where_their_snapshot_is(
    session: Session[Async], url: str, key: str
) -> None:
    name = f"base-{secrets.token_hex(4)}"
    await session.files.write("base.txt", b"text")
    snapshot = await session.snapshots.create(name)
    async with Paddock(url, key) as paddock:
        for _ in range(3):
            begun = await paddock.sessions.create(permission_level="low", from_snapshot=name)
            assert (begun.info.node, await begun.files.read("base.txt")) == (snapshot.node, b"text")
            await begun.close(purge=True)
        assert name in {each.name for each in (await paddock.snapshots.list()).items}
        assert (await paddock.snapshots.remove(name)).id == snapshot.id


async def test_a_client_of_mcp_works(session: Session[Async], url: str) -> None:
    python = installed("claude-agent-sdk", Path(sys.executable))
    handle = session.handle
    assert handle is not None
    done = await _run(python, "-c", MCP, f"{url}/api/sessions/{session.id}/mcp", handle)
    assert done.returncode == 0, done.stderr
    assert "by mcp" in done.stdout


async def test_the_sdk_of_e2b_works(url: str, key: str) -> None:
    variables: dict[str, Any] = {"E2B_API_KEY": key}
    variables |= dict.fromkeys(("E2B_API_URL", "E2B_SANDBOX_URL"), f"{url}/compat/e2b")
    done = await _run(installed("e2b-inside", Path(sys.executable)), "-c", E2B, **variables)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "6\n"


async def test_the_sdk_of_e2b_builds_templates(url: str, key: str, tmp_path: Path) -> None:
    words = ("-m", "pytest", "-q", f"--config-file={PROGRAMS / 'pytest.ini'}", "--noconftest")
    done = await _run(
        *(installed("e2b-inside", Path(sys.executable)), *words, "--import-mode=importlib"),
        *("-k", TRIALS, PROGRAMS / "trials_e2b_rest.py", PROGRAMS / "trials_e2b_inside.py"),
        PADDOCK_URL=url,
        PADDOCK_KEY=key,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout
    assert "10 passed" in done.stdout


async def test_the_client_of_swe_rex_works(
    session: Session[Async], url: str, tmp_path: Path
) -> None:
    python = installed("swerex", Path(sys.executable))
    assert session.handle is not None
    address = f"{url}/compat/swerex/{session.id}"
    done = await _run(python, "-c", SWEREX, address, session.handle, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


async def test_a_name_is_one_thing_however_many_ask_at_once(
    made_cluster: Cluster, url: str, key: str
) -> None:
    """At a gateway, and at each node."""
    doors = [url, *(node.url for node in made_cluster.nodes())]
    async with AsyncExitStack() as stack:
        asked = [await stack.enter_async_context(Paddock(door, key)) for door in doors]
        name = f"one-{secrets.token_hex(4)}"
        makings = [each.volumes.create(name, size_bytes=16 << 20) for each in asked * 3]
        made = await asyncio.gather(*makings, return_exceptions=True)
        volumes = [each for each in made if not isinstance(each, BaseException)]
        assert [type(each) for each in made if each not in volumes] == [ConflictError] * 8
        assert (await asked[0].volumes.list()).items == volumes
        # It is free once the volume is removed. Volumes and snapshots have names of their own.
        await asked[0].volumes.remove(name)
        await asked[1].volumes.create(name, size_bytes=16 << 20)
        await asked[0].volumes.remove(name)


async def test_a_terminal_of_the_console_is_typed_into(
    session: Session[Async], browser: Browser, url: str, key: str
) -> None:
    async with opened(browser, f"{url}/") as console:
        await console.sign_in(key)
        await console.go(f"sessions/{session.id}/shell")
        page = console.page
        await page.get_by_role("button", name="Open a shell").click(timeout=PATIENCE_MS)
        shell = page.locator(".xterm-rows")
        await expect(shell).to_contain_text("$", timeout=PATIENCE_MS)
        await page.keyboard.type("echo $((40 + 2)) through the gateway\n")
        await expect(shell).to_contain_text(re.compile("42 through"), timeout=PATIENCE_MS)
        if PICTURE:
            await page.screenshot(path=f"{PICTURE}/gateway-shell.png")
        await console.go("sessions")
        await console.shows(session.id)
        if PICTURE:
            await page.screenshot(path=f"{PICTURE}/gateway-sessions.png")
        await console.go("volumes")
        await console.shows("There is no volume")


async def _run(
    *argv: str | Path, cwd: Path | None = None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A program of this machine, without Paddock's and Python's own variables."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PADDOCK_", "PYTHON"))}
    return await asyncio.to_thread(
        subprocess.run,
        [str(word) for word in argv],
        cwd=cwd,
        env=clean | variables,
        capture_output=True,
        text=True,
        timeout=PROGRAM_SECONDS,
        check=False,
    )
