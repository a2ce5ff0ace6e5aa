"""The command line as a program, with real sandboxes."""

import asyncio
import hashlib
import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.forked import in_a_shell
from tests.support.limits import PROGRAM_SECONDS
from tests.support.server import ROOT, Server, leaving_nothing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(sandbox_image: str) -> AsyncIterator[Server]:
    """A server; at its end, nothing that the commands made is left."""
    async with leaving_nothing(PADDOCK_IMAGE=sandbox_image) as running:
        yield running


@asynccontextmanager
async def paddock(
    server: Server, *arguments: str, piped: bool = False
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command that finds the server and the key through the server's state directory."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("PADDOCK_")},
        "PADDOCK_STATE_DIR": str(server.state_dir),
    }
    process = await asyncio.create_subprocess_exec(
        *in_a_shell("paddock", *arguments),
        cwd=ROOT,
        env=environment,
        stdin=asyncio.subprocess.PIPE if piped else asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PROGRAM_SECONDS):
            yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ended(server: Server, *arguments: str) -> tuple[int | None, str, str]:
    """Exit status, standard output and standard error of one command."""
    async with paddock(server, *arguments) as process:
        out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


@pytest.mark.asyncio(loop_scope="module")
async def test_run(server: Server, tmp_path: Path) -> None:
    (tmp_path / "greet.sh").write_text("echo hello; echo oops >&2; exit 9\n")
    command = ("run", "--level", "high", "--upload", str(tmp_path), "--", "sh", "greet.sh")
    assert await ended(server, *command) == (9, "hello\n", "oops\n")
    status, out, err = await ended(server, "run", "--level", "low", "--", "sh", "greet.sh")
    assert (status, out, len(err.splitlines())) == (4, "", 1)
    assert "command-allowlist" in err


@pytest.mark.asyncio(loop_scope="module")
async def test_ctrl_c_ends_what_runs(server: Server) -> None:
    command = ("run", "--level", "high", "--", "sh", "-c", "echo ready; sleep 1000")
    async with paddock(server, *command) as process:
        assert process.stdout is not None
        assert await process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGINT)
        assert await process.communicate() == (b"", b"")
        assert process.returncode == 130
    sessions = (await server.ok("GET", "/api/sessions?status=active"))["items"]
    assert sessions == []


@pytest.mark.asyncio(loop_scope="module")
async def test_output_is_what_the_command_wrote(server: Server) -> None:
    """Not text, and more than a result keeps."""
    assert (await ended(server, "sessions", "create", "--id", "raw", "--level", "high"))[0] == 0
    script = "head -c 102400 /dev/urandom | tee short; head -c 9000000 /dev/urandom | tee long >&2"
    async with paddock(server, "exec", "raw", "--", "bash", "-c", script) as process:
        out, _ = await process.communicate()
    assert process.returncode == 0
    async with paddock(server, "files", "cat", "raw", "short") as process:
        assert (await process.communicate())[0] == out
    (command,) = (await server.ok("GET", "/api/sessions/raw/processes"))["items"]
    async with paddock(server, "output", "raw", command["command_id"]) as process:
        again, long = await process.communicate()
    async with paddock(server, "files", "cat", "raw", "long") as process:
        assert (await process.communicate())[0] == long
    assert (again, len(out), len(long)) == (out, 102_400, 9_000_000)
    assert (await ended(server, "sessions", "close", "raw", "--purge"))[0] == 0


@pytest.mark.asyncio(loop_scope="module")
async def test_a_session_with_files_and_audit(server: Server, tmp_path: Path) -> None:
    status, _, err = await ended(server, "sessions", "create", "--id", "cli", "--level", "low")
    assert status == 0, err
    (tmp_path / "tree" / "deep").mkdir(parents=True)
    (tmp_path / "tree" / "deep" / "note").write_bytes(bytes(range(256)))
    assert (await ended(server, "files", "put", "cli", str(tmp_path / "tree")))[0] == 0
    assert (await ended(server, "exec", "cli", "--", "find", "tree", "-type", "f")) == (
        0,
        "tree/deep/note\n",
        "",
    )
    assert (await ended(server, "files", "get", "cli", "tree", str(tmp_path / "back")))[0] == 0
    assert (tmp_path / "back" / "deep" / "note").read_bytes() == bytes(range(256))
    program, link = tmp_path / "program", str(tmp_path / "copy")
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    os.utime(program, (1_000_000_000, 1_000_000_000))
    assert (await ended(server, "files", "put", "cli", str(program)))[0] == 0
    session = await server.ok("GET", "/api/sessions/cli")
    (Path(session["workspace"]["root_dir"]) / "link").symlink_to("program")
    assert (await ended(server, "files", "get", "cli", "link", link))[0] == 0
    assert (Path(link).read_text(), Path(link).stat().st_mode & 0o111) == (
        program.read_text(),
        0o111,
    )
    assert (await ended(server, "exec", "cli", "--", "stat", "-c", "%Y", "program"))[1] == (
        "1000000000\n"
    )
    assert Path(link).stat().st_mtime == 1_000_000_000
    file = str(tmp_path / "cli.jsonl")
    assert (await ended(server, "audit", "export", "cli", "-o", file))[0] == 0
    status, out, _ = await ended(server, "audit", "verify", "--file", file)
    assert (status, "whole" in out) == (0, True)
    assert (await ended(server, "sessions", "close", "cli", "--purge"))[0] == 0


async def sent(server: Server, data: bytes, *arguments: str) -> tuple[int | None, bytes, str]:
    """Exit status and outputs of a command; the data are piped into it."""
    async with paddock(server, *arguments, piped=True) as process:
        out, err = await process.communicate(data)
    return process.returncode, out, err.decode()


@pytest.mark.asyncio(loop_scope="module")
async def test_what_is_piped_in_is_sent(server: Server) -> None:
    run = ("run", "--level", "high")
    assert await sent(server, b"one\n", *run, "--", "cat") == (0, b"one\n", "")
    # More bytes than fit into one request, for a command that starts to read late.
    data = bytes(range(256)) * 12_000
    digest = hashlib.sha256(data).hexdigest().encode()
    script = "sleep 0.3; sha256sum"
    status, out, _ = await sent(server, data, *run, "--", "sh", "-c", script)
    assert (status, out.split()[0]) == (0, digest)
    # A command that reads only a part of its input, or none, ends normally.
    assert await sent(server, data, *run, "--", "head", "-c", "1") == (0, b"\x00", "")
    assert await sent(server, data, *run, "--", "true") == (0, b"", "")
    assert await sent(server, b"x", *run, "-n", "--", "cat") == (0, b"", "")
    status, out, _ = await sent(server, b"\xff", *run, "--json", "--", "wc", "-c")
    assert (status, json.loads(out)["stdout"]) == (0, "1\n")
    status, out, _ = await sent(server, data, *run, "--json", "--", "wc", "-c")
    assert (status, json.loads(out)["stdout"]) == (0, f"{len(data)}\n")


@pytest.mark.asyncio(loop_scope="module")
async def test_a_pipe_that_stays_open_holds_up_nothing(server: Server) -> None:
    async with paddock(server, "run", "--", "echo", "done", piped=True) as process:
        assert process.stdout is not None
        assert await process.stdout.read() == b"done\n"
        assert await process.wait() == 0
    async with paddock(server, "run", "--json", "--", "echo", "done", piped=True) as process:
        assert process.stdout is not None
        assert json.loads(await process.stdout.read())["stdout"] == "done\n"
        assert await process.wait() == 0
