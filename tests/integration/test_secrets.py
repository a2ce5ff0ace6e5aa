"""A session with secrets uses every feature; then the tests search for the values everywhere.

Real sandboxes, with a control plane in a separate process that is killed in between.
"""

import asyncio
import base64
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, quote_plus

import docker
import pytest
import pytest_asyncio

from orchestrator.ground.errors import PaddockError
from orchestrator.host.engine.base import LABEL_INSTANCE
from orchestrator.host.link.messages import AgentEvent
from sandbox_agent.decide.redaction import MARK
from tests.conftest import BoxFactory
from tests.support.box import TESTER
from tests.support.leaks import NOTHING, instance, left_behind
from tests.support.limits import PROGRAM_SECONDS, WAIT_SECONDS
from tests.support.server import Server, serving
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRETS = {
    "SECRET_TOKEN": "tok_2b1f9c07d4e8a6b5",
    "SECRET_ODD": 'p"a\\s/s+w=o%r d\té✓&',
    "SECRET_KEY": "-----BEGIN KEY-----\n" + "Zm9vYmFyYmF6cXV4\n" * 120 + "-----END KEY-----",
}
ONCE = "of one command alone, 0815"
VARIABLE = "a variable's value, which is no secret"
TOOL = """
[tool]
name = "repl"
mode = "session"
risk_tier = "medium"

[session]
startup_command = "python3 -I -S -q"
ready_pattern = '^>>> $'

[session.confinement]
read = ["/usr/lib/python3", "/usr/lib/python3.11"]

[session.commands.say]
pattern = '^print\\("[a-z0-9_, ]+"\\)$'
risk_tier = "low"

[session.commands.ask]
pattern = '^"[a-z0-9_, ]+"$'
risk_tier = "low"
human_approval = true

[output]
"""


def forms(value: str) -> Iterator[bytes]:
    """The value in every encoding that Paddock promises to find."""
    data = value.encode()
    yield data
    for text in (quote(value, safe=""), quote(value), quote_plus(value)):
        yield text.encode()
        yield re.sub("%..", lambda digits: digits[0].lower(), text).encode()
    for ascii_only in (True, False):
        yield json.dumps(value, ensure_ascii=ascii_only)[1:-1].encode()
    yield repr(value)[1:-1].encode()
    yield data.hex().encode()
    yield data.hex().upper().encode()
    for before in range(3):
        first, last = (before * 8 + 5) // 6, (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(bytes(before) + data)[first:last]


def found(data: bytes) -> list[str]:
    """The names of the values that the data contain."""
    values = {**SECRETS, "ONCE": ONCE}
    # Even a single line of the long value must not appear.
    values["a line of SECRET_KEY"] = "Zm9vYmFyYmF6cXV4\nZm9vYmFyYmF6cXV4"
    return [name for name, value in values.items() for form in forms(value) if form in data]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    directory = tmp_path_factory.mktemp("secrets")
    (directory / "tools").mkdir()
    (directory / "tools" / "repl.clad.toml").write_text(TOOL)
    environment = {"PADDOCK_IMAGE": sandbox_image, "PADDOCK_TOOLS_DIR": str(directory / "tools")}
    async with serving(directory / "state", PADDOCK_LOG_LEVEL="debug", **environment) as running:
        yield running
        for session in (await running.ok("GET", "/api/sessions"))["items"]:
            await running.ok("DELETE", f"/api/sessions/{session['id']}?purge=true")
        assert left_behind(running.state_dir) == NOTHING


class Session:
    """One session and the calls that it makes."""

    def __init__(self, server: Server, name: str) -> None:
        self.server = server
        self.path = f"/api/sessions/{name}"

    async def run(self, argv: list[str], status: int = 200, **more: Any) -> dict[str, Any]:
        code, answer = await self.server.call("POST", f"{self.path}/exec", {"argv": argv, **more})
        assert code == status, answer
        return dict(answer)

    async def bash(self, script: str, **more: Any) -> str:
        answer = await self.run(["bash", "-c", script], **more)
        assert answer["exit_code"] == 0, answer
        return str(answer["stdout"])

    async def level(self, name: str) -> None:
        body = {"settings": {"permission_level": name}}
        await self.server.ok("PUT", f"{self.path}/settings", body)

    async def events(self) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = (
            await self.server.ok("GET", f"{self.path}/audit?limit=1000")
        )["items"]
        return items


async def work(session: Session) -> None:
    """Runs commands that have the values in every kind of recorded word."""
    token, odd = SECRETS["SECRET_TOKEN"], SECRETS["SECRET_ODD"]
    # The caller may see what a command prints.
    for name, value in SECRETS.items():
        assert await session.bash(f'printf %s "${name}"') == value
    # Expanded by a shell, and encoded by programs: the words of `command.exec`.
    await session.bash('/bin/true "$SECRET_TOKEN" "x$SECRET_ODD" "$SECRET_KEY"')
    await session.bash('/bin/true "$(printf %s "user:$SECRET_TOKEN" | base64 -w0)"')
    await session.bash('/bin/true "$(printf %s "$SECRET_KEY" | base64)"')
    await session.bash('/bin/true "$(printf %s "$SECRET_ODD" | od -An -v -tx1 | tr -d " \\n")"')
    await session.bash("/bin/true " + json.dumps(quote(odd, safe="")))
    # The value crosses the end of a reported excerpt, which must not contain its beginning.
    await session.bash('/bin/true "$(printf %01010d 0)$SECRET_TOKEN"')
    await session.run([f"/nowhere/{token}"])
    await session.run(["ls", f"/nowhere/{odd}"], cwd=".")
    await session.run(["cat"], status=200, stdin=token)
    await session.run(["true", ONCE], secrets={"ONCE": ONCE})
    assert await session.bash('printf %s "$ONCE"', secrets={"ONCE": ONCE}) == ONCE
    background = await session.run(["sleep", token], status=202, background=True)
    assert background["argv"] == ["sleep", MARK]
    await session.server.ok("POST", f"{session.path}/interrupt", {})
    await session.run(["no such program " + token])
    await session.run(["ls"], cwd=f"../{token}")


async def files(session: Session) -> None:
    """Uses files whose names contain a secret."""
    token = SECRETS["SECRET_TOKEN"]
    call, path = session.server.call, f"{session.path}/files"
    for method, where, body in (
        ("PUT", f"{path}?path={token}.txt", token),
        ("GET", f"{path}?path={token}.txt", None),
        ("GET", f"{path}?path=not-{token}", None),
        ("GET", f"{path}/list?path=.", None),
        ("POST", f"{path}/mkdir", {"path": f"of/{token}"}),
        ("POST", f"{path}/move", {"source": f"{token}.txt", "destination": f"{token}.md"}),
        ("DELETE", f"{path}?path={quote(f'{token}.md')}", None),
        ("DELETE", f"{path}?path=of", None),
    ):
        data = body if isinstance(body, str | None) else json.dumps(body)
        async with session.server.client.request(method, where, data=data) as response:
            answer = await response.read()
            assert response.status < 500
            assert response.status < 400 or token.encode() not in answer
    assert (await call("GET", f"{path}?path=../proc/{token}"))[0] == 403


async def terminal(session: Session) -> None:
    """Lets a tool print a secret, and a person approve a line that contains one."""
    token, path = SECRETS["SECRET_TOKEN"], f"{session.path}/ptys"
    opened = await session.server.ok("POST", path, {"tool": "repl"})
    where = f"{path}/{opened['id']}"
    line = {"tool": "repl.say", "command": f'print("{token}, {ONCE.partition(",")[0]}")'}
    answer = await session.server.ok("POST", f"{where}/interactions", line)
    assert token in answer["results"]["output"]
    asked = {"tool": "repl.ask", "command": f'"{token}"'}
    pending = await session.server.ok("POST", f"{where}/interactions", asked)
    assert pending["approval"]["command"] == f'"{MARK}"'
    approval = f"/api/approvals/{pending['approval']['id']}"
    await session.server.ok("POST", approval, {"decision": "approve", "reason": f"for {token}"})
    done = await session.server.ok("POST", f"{where}/interactions", asked)
    assert done["status"] == "success"
    refused = {"tool": "repl.say", "command": f"exec({token})"}
    status, problem = await session.server.call("POST", f"{where}/interactions", refused)
    assert (status, token in json.dumps(problem)) == (403, False)
    async with session.server.client.get(f"{where}/transcript") as response:
        assert f'print(\\"{MARK}, ' in await response.text()
    await session.server.ok("DELETE", where)


@contextmanager
def engine() -> Iterator[docker.APIClient]:
    with closing(docker.APIClient(version="auto")) as client:
        yield client


def of_the_engine(state_dir: Path) -> bytes:
    """`docker inspect`, `docker logs` and `docker top` of the instance's containers."""
    with engine() as client:
        label = f"{LABEL_INSTANCE}={instance(state_dir)}"
        shown = b""
        for container in client.containers(all=True, filters={"label": [label]}):
            shown += json.dumps(client.inspect_container(container["Id"])).encode()
            shown += json.dumps(client.top(container["Id"])).encode()
            shown += bytes(client.logs(container["Id"]))
        assert shown
        return shown


def of_the_state(state_dir: Path) -> bytes:
    """Every file of the state directory, except workspaces, which may contain the values."""
    data, names = b"", set()
    for directory, below, files in os.walk(state_dir):
        # Workspaces, images prepared for new ones, and their mounts in sandboxes.
        below[:] = [name for name in below if name not in ("slots", "prepared", "workspace")]
        for name in files:
            file = Path(directory) / name
            if file.is_file():
                data += b"%s\n%s\n" % (str(file).encode(), file.read_bytes())
                names.add(name)
    assert {"paddock.db", "transcript.log", "raw", "passwd"} <= names
    return data


def of_a_backup(state_dir: Path, directory: Path) -> bytes:
    """A backup made as documented, but without the workspaces."""
    archive = directory / "backup.tar"
    left_out = [f"--exclude={state_dir.name}/{name}" for name in ("sandboxes", "prepared", "slots")]
    command = ["tar", "-C", str(state_dir.parent), *left_out, "-cf", str(archive), state_dir.name]
    subprocess.run(command, check=True, timeout=PROGRAM_SECONDS)
    return archive.read_bytes()


async def test_values_are_nowhere_but_where_they_must_be(server: Server, tmp_path: Path) -> None:
    state_dir = server.state_dir
    body = {"id": "box", "permission_level": "high", "secrets": SECRETS, "env": {"A": VARIABLE}}
    created = await server.ok("POST", "/api/sessions", body)
    assert created["secrets"] == sorted(SECRETS)
    session = Session(server, "box")
    assert await session.bash('printf %s "$A"') == VARIABLE
    for step in (work, files, terminal):
        await step(session)
        assert found(of_the_engine(state_dir)) == []
    # To a level that allows only listed variables, and back: the new sandboxes get the values.
    await session.level("low")
    for argv in (["cat", f"/{SECRETS['SECRET_TOKEN']}"], [SECRETS["SECRET_ODD"]]):
        problem = await session.run(argv, status=403)
        assert found(json.dumps(problem, ensure_ascii=False).encode()) == []
    await session.level("high")
    await work(session)
    # After a kill, the values can come back only from the sandbox.
    await server.kill()
    assert found(of_the_state(state_dir)) == []
    await server.start()
    await work(session)
    await files(session)
    shown = await server.ok("GET", session.path)
    recorded = await session.events()
    assert shown["secrets"] == sorted(SECRETS)
    operations = {event["operation"] for event in recorded}
    assert {"command.exec", "file.write", "pty.interaction", "approval.decision"} <= operations
    texts = json.dumps([shown, recorded], ensure_ascii=False)
    assert found(texts.encode()) == []
    assert texts.count(MARK) > 50
    # The text around the values is kept.
    assert f'"x{MARK}"' in texts
    assert f"/nowhere/{MARK}" in texts
    for data in (of_the_engine(state_dir), of_the_state(state_dir)):
        assert found(data) == []
    await server.ok("DELETE", "/api/sessions/box")
    await asyncio.wait_for(until_gone(state_dir, VARIABLE.encode()), WAIT_SECONDS)
    await server.stop()
    assert found(of_a_backup(state_dir, tmp_path)) == []
    assert VARIABLE.encode() not in of_a_backup(state_dir, tmp_path)
    assert found(server.log) == []
    assert b"/api/sessions/{session_id}/exec" in server.log
    await server.start()


async def until_gone(state_dir: Path, value: bytes) -> None:
    database = [state_dir / "paddock.db", state_dir / "paddock.db-wal"]
    await until(lambda: not any(value in file.read_bytes() for file in database))


async def test_nothing_of_ours_leaves_a_core_dump(server: Server) -> None:
    """If the core pattern names a program of the host, a limit of 0 would not prevent its start."""
    limits = Path(f"/proc/{server.pid}/limits").read_text()
    (core,) = [line for line in limits.splitlines() if line.startswith("Max core file size")]
    assert core.split()[4:6] == ["1", "1"]
    await server.ok("POST", "/api/sessions", {"id": "dump", "permission_level": "high"})
    session = Session(server, "dump")
    said = await session.bash("grep core /proc/self/limits")
    assert said.split()[4:6] == ["1", "1"]
    crashed = await session.run(["python3", "-c", "import os; os.abort()"])
    assert crashed["signal"] == "SIGABRT"
    assert await session.bash("ls -A") == ""


async def test_the_agent_says_none_of_them(new_box: BoxFactory) -> None:
    """The agent's reports and refusals contain no value, before the host removes values again."""
    box = await new_box("high", secrets=SECRETS)
    assert box.session.sandbox is not None
    link, said = box.session.sandbox.link, []
    record = link._on_event

    async def listen(event: AgentEvent) -> None:
        said.append(repr(event))
        await record(event)

    link._on_event = listen
    token = SECRETS["SECRET_TOKEN"]
    await box.bash('/bin/true "$SECRET_TOKEN" "$SECRET_ODD" "$SECRET_KEY" "$SECRET_TOKEN"')
    await box.bash('/bin/true "$ONCE"', secrets={"ONCE": ONCE})
    await box.run(argv=[f"/nowhere/{token}"])
    await box.run(argv=["ls", ONCE])
    await box.write(f"{token}.txt", b"x")
    for method, params in (
        ("file.stat", {"path": f"not-{token}"}),
        ("file.open", {"op": "read", "path": f"not-{token}"}),
        ("file.move", {"source": f"not-{token}", "destination": "a"}),
        (token, {}),
        ("signal", {"command_id": token, "signal": 9}),
    ):
        with pytest.raises(PaddockError) as refused:
            await box.ask(method, **params)
        said.append(refused.value.detail)
    assert found("\n".join(said).encode()) == []
    assert sum(MARK in text for text in said) >= 8


async def test_who_is_given_them(new_box: BoxFactory) -> None:
    """Every command gets them; a level that lists variables passes only names without an effect."""
    token, library = SECRETS["SECRET_TOKEN"], "/workspace/own.so"
    box = await new_box("high", secrets={"SECRET_TOKEN": token, "LD_AUDIT": library})
    names = "import os, json; print(json.dumps(sorted(os.environ)))"
    assert {"SECRET_TOKEN", "LD_AUDIT"} <= set((await box.python(names)).value)
    # A command's variable overrides the session's.
    seen = await box.bash('printf %s "$SECRET_TOKEN"', env={"SECRET_TOKEN": "its own"})
    assert seen.stdout == "its own"
    await box.plane.sessions.changes.set_level(TESTER, box.session, "medium", {})
    printed = (await box.run("env")).stdout
    assert f"SECRET_TOKEN={token}\n" in printed
    assert "LD_AUDIT" not in printed
    # A terminal's program gets only the environment of its manifest.
    await box.plane.sessions.changes.set_level(TESTER, box.session, "high", {})
    opened = await box.plane.tools.open(TESTER, box.session, "python3")
    (tool,) = [p for p in box.processes() if p.cmdline()[1:] == ["-I", "-S", "-q"]]
    assert "SECRET_TOKEN" not in tool.environ()
    await box.plane.terminals.close(box.session, opened.id)
