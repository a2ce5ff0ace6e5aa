"""OpenAI Agents: its shell tool and its sandboxes, with agents whose model is a script."""

import io
import json
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    ShellActionRequest,
    ShellCallData,
    ShellCommandRequest,
    ShellTool,
    Usage,
    set_tracing_disabled,
)
from agents.run_config import SandboxRunConfig
from agents.sandbox.entries import File
from agents.sandbox.errors import (
    ConfigurationError,
    ExecTimeoutError,
    ExecTransportError,
    InvalidManifestPathError,
    WorkspaceArchiveWriteError,
    WorkspaceReadNotFoundError,
    WorkspaceStartError,
)
from agents.sandbox.manifest import Manifest
from agents.sandbox.sandbox_agent import SandboxAgent
from agents.sandbox.snapshot import LocalSnapshotSpec
from openai.types.responses import (
    ResponseFunctionShellToolCall,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

import paddock
from paddock.integrations.openai_agents import PaddockSandboxClient, PaddockSandboxClientOptions
from paddock.integrations.openai_shell import PaddockShell

pytestmark = pytest.mark.anyio
set_tracing_disabled(True)
HIGH = PaddockSandboxClientOptions(permission_level="high")


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


async def live() -> set[str]:
    async with paddock.Paddock() as client:
        return {each.id for each in await client.sessions.list() if each.info.live}


class Script(Model):
    """Gives its answers in turn, and keeps what it was given."""

    def __init__(self, *answers: Any) -> None:
        self._answers = iter(answers)
        self.given: list[Any] = []

    async def get_response(self, *arguments: Any, **named: Any) -> ModelResponse:
        self.given.append(named.get("input", arguments[1] if len(arguments) > 1 else None))
        return ModelResponse(output=[next(self._answers)], usage=Usage(), response_id=None)

    async def stream_response(self, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        raise NotImplementedError
        yield


def said(text: str) -> Any:
    part = ResponseOutputText(text=text, type="output_text", annotations=[])
    return ResponseOutputMessage(
        id="m", type="message", role="assistant", status="completed", content=[part]
    )


def request(*commands: str, **more: Any) -> Any:
    action = ShellActionRequest(commands=list(commands), **more)
    data = ShellCallData(call_id="1", action=action)
    return ShellCommandRequest(ctx_wrapper=None, data=data)


async def test_the_shell_tool_runs_each_line() -> None:
    async with paddock.session(permission_level="high") as session:
        result = await PaddockShell(session)(
            request("echo a | tr a b; echo e >&2", "cd /tmp; exit 3", "pwd", max_output_length=99)
        )
    found = [(each.stdout, each.stderr, each.exit_code) for each in result.output]
    assert found == [("b\n", "e\n", 0), ("", "", 3), ("/workspace\n", "", 0)]
    assert result.max_output_length == 99


async def test_a_line_that_takes_too_long_ends_the_call() -> None:
    async with paddock.session(permission_level="high") as session:
        result = await PaddockShell(session)(
            request("echo begun; sleep 600", "echo never", timeout_ms=1000)
        )
    (only,) = result.output
    assert (only.stdout, only.status) == ("begun\n", "timeout")


async def test_a_refusal_is_for_the_model() -> None:
    """The level is the default one, which runs no shell."""
    async with paddock.session() as session:
        (only,) = (await PaddockShell(session)(request("ls"))).output
    assert (only.exit_code, "shell-level" in only.stderr) == (126, True)


async def test_an_agent_uses_the_shell_tool() -> None:
    call = ResponseFunctionShellToolCall.model_validate(
        {
            "type": "shell_call",
            "id": "s",
            "call_id": "c",
            "status": "completed",
            "action": {"commands": ["seq 3 | paste -sd+"], "timeout_ms": None},
            "environment": {"type": "local"},
        }
    )
    model = Script(call, said("1+2+3"))
    async with paddock.session(permission_level="high") as session:
        tool = ShellTool(executor=PaddockShell(session))
        agent = Agent(name="a", model=model, tools=[tool])
        result = await Runner.run(agent, "add")
    assert result.final_output == "1+2+3"
    assert "1+2+3" in json.dumps(model.given[1], default=str)


@pytest.fixture(scope="module")
async def sandbox(anyio_backend: str) -> AsyncIterator[Any]:
    client = PaddockSandboxClient()
    manifest = Manifest(
        entries={"given.txt": File(content=b"given\n")},
        environment={"value": {"WORD": "hello"}},
    )
    made = await client.create(manifest=manifest, options=HIGH)
    async with made:
        assert await made.running()
        yield made
    assert not await made.running()
    await client.delete(made)
    await client.delete(made)
    assert made.state.paddock_session_id not in await live()


async def test_commands(sandbox: Any) -> None:
    done = await sandbox.exec("echo $WORD; cat given.txt; pwd; printf '\\377' >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == (b"hello\ngiven\n/workspace\n", b"\xff", 3)
    done = await sandbox.exec("echo", "a b", "$WORD", shell=False)
    assert done.stdout == b"a b $WORD\n"
    with pytest.raises(ExecTimeoutError):
        await sandbox.exec("sleep 600", timeout=1)


async def test_files(sandbox: Any) -> None:
    content = bytes(range(256)) * 1000
    await sandbox.write(Path("new/dir/a.bin"), io.BytesIO(content))
    assert (await sandbox.read(Path("new/dir/a.bin"))).read() == content
    assert await sandbox.read_bounded(Path("new/dir/a.bin"), max_bytes=10) == content[:10]
    await sandbox.write(Path("empty"), io.BytesIO(b""))
    assert (await sandbox.read(Path("empty"))).read() == b""
    listed = {Path(each.path).name for each in await sandbox.ls("new/dir")}
    assert "a.bin" in listed
    await sandbox.mkdir("made/by/it", parents=True)
    await sandbox.mv("new/dir/a.bin", "made/by/it/b.bin")
    await sandbox.rm("new", recursive=True)
    assert (await sandbox.exec("ls -d new")).exit_code == 2
    with pytest.raises(WorkspaceReadNotFoundError):
        await sandbox.read(Path("new/dir/a.bin"))


async def test_paths_and_links_that_lead_out_are_refused(sandbox: Any) -> None:
    for path in ("/etc/passwd", "../etc/passwd"):
        with pytest.raises(InvalidManifestPathError):
            await sandbox.read(Path(path))
    await sandbox.exec("ln -s /etc out")
    with pytest.raises(InvalidManifestPathError):
        await sandbox.read(Path("out/passwd"))
    with pytest.raises(InvalidManifestPathError):
        await sandbox.write(Path("out/new"), io.BytesIO(b"x"))
    await sandbox.exec("rm out")


async def test_users_are_refused(sandbox: Any) -> None:
    with pytest.raises(ConfigurationError, match="own user"):
        await sandbox.exec("ls", user="root")
    with pytest.raises(ConfigurationError, match="own user"):
        await sandbox.read(Path("given.txt"), user="root")


async def test_the_workspace_as_an_archive(sandbox: Any) -> None:
    await sandbox.exec("mkdir -p kept; echo 1 > kept/a; chmod 755 kept/a; ln -s a kept/link")
    sandbox.register_persist_workspace_skip_path("given.txt")
    packed = (await sandbox.persist_workspace()).read()
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        names = set(archive.getnames())
        assert archive.getmember("./kept/a").mode & 0o777 == 0o755
    assert {"./kept/a", "./kept/link"} <= names
    assert not any("given.txt" in name or name.endswith(".tar") for name in names)
    await sandbox.exec("rm -r kept")
    await sandbox.hydrate_workspace(io.BytesIO(packed))
    assert (await sandbox.exec("cat kept/link; ls -A | grep -c tar")).stdout == b"1\n0\n"


async def test_an_archive_that_leads_out_is_refused(sandbox: Any) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("../out"), io.BytesIO())
    with pytest.raises(WorkspaceArchiveWriteError):
        await sandbox.hydrate_workspace(io.BytesIO(packed.getvalue()))


async def test_a_state_finds_its_session_again() -> None:
    """As after a client that died: what it has made is there, and the new owner closes it."""
    client = PaddockSandboxClient()
    first = await client.create(options=HIGH)
    await first.start()
    await first.exec("echo kept > here")
    state = client.deserialize_session_state(client.serialize_session_state(first.state))
    assert "key" not in json.dumps(client.serialize_session_state(first.state)["options"])
    again = await PaddockSandboxClient().resume(state)
    async with again:
        assert again.state.paddock_session_id == first.state.paddock_session_id
        assert (await again.exec("cat here")).stdout == b"kept\n"
    assert first.state.paddock_session_id not in await live()
    with pytest.raises(ExecTransportError):
        await first.exec("true")
    await client.delete(first)


async def test_a_snapshot_outlives_its_session(tmp_path: Path) -> None:
    client = PaddockSandboxClient()
    made = await client.create(options=HIGH, snapshot=LocalSnapshotSpec(base_path=tmp_path))
    async with made:
        await made.exec("mkdir d; echo kept > d/here")
    await client.delete(made)
    again = await client.resume(made.state)
    async with again:
        assert (await again.exec("cat d/here")).stdout == b"kept\n"
    assert again.state.paddock_session_id not in await live()


async def test_another_root_and_a_refusal() -> None:
    client = PaddockSandboxClient()
    manifest = Manifest(root="/home/user/project", entries={"a": File(content=b"a")})
    made = await client.create(manifest=manifest, options=HIGH)
    async with made:
        assert (await made.exec("pwd; cat a")).stdout == b"/home/user/project\na"
    refused = PaddockSandboxClientOptions(permission_level="none")
    with pytest.raises(WorkspaceStartError, match="level"):
        await client.create(options=refused)
    medium = await client.create(options=PaddockSandboxClientOptions())
    done = await medium.exec("ls")
    assert (done.exit_code, b"command-allowlist" in done.stderr) == (126, True)
    await client.delete(medium)


async def test_an_agent_works_in_a_sandbox() -> None:
    arguments = json.dumps({"cmd": "cat given.txt | tr a-z A-Z"})
    call = ResponseFunctionToolCall(
        type="function_call", call_id="c", name="exec_command", arguments=arguments
    )
    model = Script(call, said("GIVEN"))
    agent = SandboxAgent(
        name="a",
        model=model,
        default_manifest=Manifest(entries={"given.txt": File(content=b"given")}),
    )
    config = RunConfig(sandbox=SandboxRunConfig(client=PaddockSandboxClient(), options=HIGH))
    before = await live()
    result = await Runner.run(agent, "shout", run_config=config)
    assert result.final_output == "GIVEN"
    assert "GIVEN" in json.dumps(model.given[1], default=str)
    assert await live() == before
