"""Clients of other sandboxes, by their protocols' plain HTTP, in real sandboxes."""

import asyncio
import io
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from tests.support.limits import WAIT_SECONDS
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(sandbox_image: str) -> AsyncIterator[Server]:
    """A server; at its end, nothing that the sessions made is left."""
    named = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_COMPAT": "swerex,openhands"}
    async with leaving_nothing(**named) as running:
        yield running


@asynccontextmanager
async def client_of(
    server: Server, protocol: str, header: str, **session: Any
) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the protocol for a session of its own, with the session's handle."""
    made = await server.ok("POST", "/api/sessions", {"permission_level": "high", **session})
    url = f"{server.url}/compat/{protocol}/{made['id']}/"
    try:
        async with aiohttp.ClientSession(url, headers={header: made["handle"]}) as client:
            yield client
    finally:
        await server.ok("DELETE", f"/api/sessions/{made['id']}?purge=true")


async def answer(client: aiohttp.ClientSession, method: str, path: str, **more: Any) -> Any:
    async with client.request(method, path, **more) as response:
        found = await response.json()
        assert response.status == 200, found
        return found


async def test_an_agent_that_keeps_its_tools_in_the_home_of_root(server: Server) -> None:
    """As SWE-agent begins: a shell, its tools from a zip archive, its state in a file."""
    async with client_of(server, "swerex", "X-API-Key", workspace_path="/root") as client:

        async def run(command: str, **more: Any) -> dict[str, Any]:
            body = {"command": command, "timeout": WAIT_SECONDS, **more}
            found: dict[str, Any] = await answer(client, "POST", "run_in_session", json=body)
            return found

        source = {"startup_source": ["/root/.bashrc"], "startup_timeout": WAIT_SECONDS}
        await answer(client, "POST", "create_session", json=source)
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w") as archive:
            archive.writestr("bin/greet", "#!/bin/bash\necho hello $1 from $GREETER\n")
            archive.writestr("install.sh", "export GREETER=tools\n")
        form = aiohttp.FormData()
        form.add_field("file", packed.getvalue(), filename="tools.zip")
        form.add_field("target_path", "/root/tools/greet")
        form.add_field("unzip", "true")
        assert await answer(client, "POST", "upload", data=form) == {}
        await run(
            "export PATH=/root/tools/greet/bin:$PATH && cd /root/tools/greet && source install.sh "
            "&& chmod +x bin/*"
        )
        assert await run("cd /root; greet you") == {
            "output": "hello you from tools\n",
            "exit_code": 0,
            "failure_reason": "",
            "expect_string": "",
            "session_type": "bash",
        }
        body = {"path": "/root/state/a.json", "content": "{}"}
        assert await answer(client, "POST", "write_file", json=body) == {}
        assert (await run("cat state/a.json"))["output"] == "{}"
        command = {
            "command": ["bash", "-c", "echo out; echo err >&2"],
            "merge_output_streams": True,
        }
        ran = await answer(client, "POST", "execute", json=command)
        assert ran == {"stdout": "out\nerr\n", "stderr": "", "exit_code": 0}
        await answer(client, "POST", "close")


async def test_a_command_that_ignores_interrupts_ends_as_a_job(server: Server) -> None:
    async with client_of(server, "swerex", "X-API-Key") as client:
        await answer(client, "POST", "create_session", json={})
        stubborn = """bash -c 'trap "" INT; echo begun; while :; do sleep 0.1; done'"""
        body = {"command": stubborn, "expect": ["begun"], "timeout": WAIT_SECONDS}
        begun = await answer(client, "POST", "run_in_session", json=body)
        assert (begun["expect_string"], begun["exit_code"]) == ("begun", None)
        interrupt = {"action_type": "bash_interrupt", "timeout": 0.2, "n_retry": 2}
        assert (await answer(client, "POST", "run_in_session", json=interrupt))["exit_code"] == 0
        said = [
            (await answer(client, "POST", "run_in_session", json={"command": "echo on"}))["output"]
            for _ in range(2)
        ]
        assert "Killed" in said[0]
        assert said[0].endswith("on\n")
        assert said[1] == "on\n"


async def test_a_workspace_whose_commands_are_polled(server: Server) -> None:
    async with client_of(server, "openhands", "X-Session-API-Key") as client:

        async def run(command: str) -> tuple[str, str, int]:
            body = {"command": command, "cwd": "/workspace", "timeout": int(WAIT_SECONDS)}
            started = await answer(client, "POST", "api/bash/start_bash_command", json=body)
            texts, after = {"stdout": "", "stderr": ""}, 0
            async with asyncio.timeout(WAIT_SECONDS):
                while True:
                    query = {"command_id__eq": started["id"], "order__gt": str(after)}
                    page = await answer(client, "GET", "api/bash/bash_events/search", params=query)
                    for event in page["items"]:
                        after = event["order"]
                        for stream in texts:
                            texts[stream] += event[stream] or ""
                        if event["exit_code"] is not None:
                            return texts["stdout"], texts["stderr"], event["exit_code"]

        assert await run("echo out; echo err >&2; (exit 3)") == ("out\n", "err\n", 3)
        stdout, _, exit_code = await run("head -c 3000000 /dev/zero | tr '\\0' x")
        assert (len(stdout), set(stdout), exit_code) == (3_000_000, {"x"}, 0)
        where = {"path": "/workspace/repo"}
        assert await run(
            "mkdir repo && cd repo && git init -q && echo one > 'a b' && echo two > gone && "
            "git add -A && git -c user.name=n -c user.email=e@x commit -qm first && "
            "echo more >> 'a b' && rm gone && echo new > ü"
        ) == ("", "", 0)
        assert await answer(client, "GET", "api/git/changes", params=where) == [
            {"status": "UPDATED", "path": "a b"},
            {"status": "DELETED", "path": "gone"},
            {"status": "ADDED", "path": "ü"},
        ]
        for name, expected in {
            "a b": {"modified": "one\nmore", "original": "one"},
            "gone": {"modified": "", "original": "two"},
            "ü": {"modified": "new", "original": ""},
        }.items():
            asked = {"path": f"/workspace/repo/{name}"}
            assert await answer(client, "GET", "api/git/diff", params=asked) == expected
        await run("git init -q empty && echo x > empty/y")
        asked = {"path": "/workspace/empty"}
        found = await answer(client, "GET", "api/git/changes", params=asked)
        assert found == [{"status": "ADDED", "path": "y"}]
        data = bytes(range(256)) * 1000
        form = aiohttp.FormData()
        form.add_field("file", data, filename="x")
        place = {"path": "/workspace/deep/x"}
        done = await answer(client, "POST", "api/file/upload", params=place, data=form)
        assert (done["success"], done["file_size"]) == (True, len(data))
        async with client.get("api/file/download", params=place) as response:
            assert await response.read() == data
