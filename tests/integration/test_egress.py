"""The way out of real sandboxes: programs reach what the rules allow, unchanged."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.rules.egress.session_egress import narrowing_of
from paddock.contract.words import Kind
from tests.support.box import TESTER, Box
from tests.support.egress import (
    Endless,
    Names,
    NamesResolver,
    Silent,
    Web,
    certificate,
    hello,
    level_with,
    web,
)
from tests.support.limits import WAIT_SECONDS
from tests.support.plane import clear, opened, running, state
from tests.support.ports import web_server
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = Names()
# Downloads a URL with the standard library, which reads the variables by itself.
URLLIB = "import sys, urllib.request as r; print(r.urlopen(sys.argv[1]).read().decode())"
# Tries all processes that are not its own.
REACH = """
import ctypes, json, os
libc, found = ctypes.CDLL(None), {"signalled": [], "traced": []}
for pid in (int(name) for name in os.listdir("/proc") if name.isdigit()):
    if pid == os.getpid():
        continue
    try:
        os.kill(pid, 0)
        found["signalled"].append(pid)
    except OSError:
        pass
    if libc.ptrace(0x4206, pid, None, None) == 0:  # PTRACE_SEIZE
        found["traced"].append(pid)
print(json.dumps(found))
"""
FETCH = ["curl", "-sS", "--max-time", "20"]
# Makes as many requests as may be open at once, each second one with no more to send.
OCCUPY = """
import socket, sys, time
opened = []
for number in range(64):
    opened.append(socket.create_connection(("127.0.0.1", 3128)))
    opened[-1].sendall(f"GET {sys.argv[1]} HTTP/1.1\\r\\nHost: {sys.argv[2]}\\r\\n\\r\\n".encode())
    if number % 2:
        opened[-1].shutdown(socket.SHUT_WR)
time.sleep(600)
"""
HALF_CLOSE = """
import socket, sys
with socket.create_connection(("127.0.0.1", 3128)) as proxy:
    proxy.sendall(sys.argv[1].encode())
    proxy.shutdown(socket.SHUT_WR)
    print(b"".join(iter(lambda: proxy.recv(4096), b"")).decode())
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Web]:
    async with web(hello()) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def endless() -> AsyncIterator[Endless]:
    async with web(Endless()) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def silent() -> AsyncIterator[Silent]:
    async with web(Silent()) as served:
        yield served


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    return certificate(tmp_path_factory.mktemp("tls"), "allowed.example")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def secure(tls: ssl.SSLContext) -> AsyncIterator[Web]:
    async with web(hello(), tls) as served:
        yield served


@pytest.fixture(scope="module")
def levels(
    server: Web,
    secure: Web,
    endless: Endless,
    silent: Silent,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Levels with one allowed host: `out` is like medium, and `free` like high."""
    NAMES.answers = {"allowed.example": [["127.0.0.1"]], "other.example": [["127.0.0.1"]]}
    directory = tmp_path_factory.mktemp("levels")
    ports = [server.port, secure.port, endless.port, silent.port]
    rules = f'\n[[egress.allow]]\nhost = "allowed.example"\nports = {ports}\n'
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
async def box(plane: ControlPlane) -> Box:
    return await Box.create(plane, "out")


async def test_curl_reaches_an_allowed_host(box: Box, server: Web) -> None:
    said = await box.run(f"curl -sS http://allowed.example:{server.port}/a?b=c")
    assert (said.exit_code, said.stdout) == (0, "hello\n"), said
    assert server.received[-1].startswith(b"GET /a?b=c HTTP/1.1\r\nHost: allowed.example:")


async def test_tls_passes_through_unread(box: Box, secure: Web) -> None:
    said = await box.run(f"curl -sSk https://allowed.example:{secure.port}/x")
    assert (said.exit_code, said.stdout) == (0, "hello\n"), said
    assert secure.received[-1].startswith(b"GET /x HTTP/1.1\r\n")


async def test_a_request_s_body_arrives_whole(plane: ControlPlane, server: Web) -> None:
    box = await Box.create(plane, "free")
    await box.write("body", b"x" * 200_000)
    for how in ([], ["-H", "Transfer-Encoding: chunked"]):
        url = f"http://allowed.example:{server.port}/"
        said = await box.run(argv=[*FETCH, *how, "--data-binary", "@body", url])
        assert said.stdout == "hello\n", said
        assert server.received[-1].count(b"x") >= 200_000


async def test_programs_find_the_proxy_by_themselves(plane: ControlPlane, server: Web) -> None:
    box = await Box.create(plane, "free")
    said = await box.python(URLLIB, f"http://allowed.example:{server.port}/")
    assert said.stdout == "hello\n\n", said


async def test_a_request_without_tls_in_a_tunnel_arrives(plane: ControlPlane, server: Web) -> None:
    """As Node's clients and `curl -p` send it."""
    box = await Box.create(plane, "free")
    said = await box.bash(f"curl -sSp http://allowed.example:{server.port}/tunnelled")
    assert (said.exit_code, said.stdout) == (0, "hello\n"), said
    assert server.received[-1].startswith(b"GET /tunnelled HTTP/1.1\r\n")
    assert [each["args"].get("path") for each in await box.events("egress.request")][-2:] == [
        None,
        "/tunnelled",
    ]


async def test_programs_of_the_sandbox_s_own_are_reached_without_the_proxy(
    plane: ControlPlane,
) -> None:
    box = await Box.create(plane, "free")
    await box.write("index.html", b"own")
    await web_server(box)
    for host in ("localhost", "127.0.0.1", "127.0.0.2", "0.0.0.0", "sandbox", "$(hostname)"):
        said = await box.bash(f"curl -sS --max-time 20 http://{host}:8000/")
        assert said.stdout == "own", (host, said)
    assert await box.events("egress.request") == []
    shown = await box.bash("echo $NODE_USE_ENV_PROXY")
    assert shown.stdout == "1\n"


async def test_a_denied_host_is_told_the_rule_and_the_remedy(box: Box, server: Web) -> None:
    before = server.connections
    said = await box.run(f"curl -sS http://other.example:{server.port}/")
    assert "Rule: not-listed" in said.stdout
    assert 'host = "other.example"' in said.stdout
    tunnel = await box.run(f"curl -sS https://other.example:{server.port}/")
    assert tunnel.exit_code == 56
    assert "403" in tunnel.stderr
    assert server.connections == before


async def test_every_connection_is_on_record(plane: ControlPlane, server: Web) -> None:
    box = await Box.create(plane, "out")
    await box.run(f"curl -sS http://allowed.example:{server.port}/a?secret=1")
    await box.run(f"curl -sS http://other.example:{server.port}/b")
    asked, denied = await box.events("egress.request")
    (closed,) = await until_closed(box, 1)
    port = server.port
    assert asked["decision"] == "allow"
    assert asked["rule"].startswith("allow allowed.example:")
    assert asked["args"] == {
        "host": "allowed.example",
        "port": port,
        "method": "GET",
        "path": "/a",
        "program": "curl",
        "addresses": ["127.0.0.1"],
        "connection_id": closed["args"]["connection_id"],
    }
    assert closed["result"]["address"] == "127.0.0.1"
    assert closed["result"]["received_bytes"] == len(server.answer)
    assert closed["result"]["sent_bytes"] == len(server.received[-1])
    assert closed["error"] is None
    assert (denied["decision"], denied["rule"]) == ("deny", "not-listed")
    assert denied["args"] == {
        "host": "other.example",
        "port": port,
        "method": "GET",
        "path": "/b",
        "program": "curl",
    }
    used = len(server.answer) + len(server.received[-1])
    assert box.session.budget.used(Kind.EGRESS_BYTES) == used


async def test_the_record_names_the_program(plane: ControlPlane, server: Web, secure: Web) -> None:
    """By what the sandbox says; rules may ask for it."""
    box = await Box.create(plane, "free")
    url = f"http://allowed.example:{server.port}/"
    await box.write("fetch.py", URLLIB.encode())
    await box.mkdir("fetch")
    await box.write("fetch/__main__.py", URLLIB.encode())
    await box.run(argv=["curl", "-sS", url])
    await box.run(argv=["python3", "fetch.py", url])
    await box.run(argv=["python3", "-m", "fetch", url])
    await box.run(argv=["sh", "-c", f"cp $(which curl) git-x && ./git-x -sSk {url}"])
    told = [event["args"]["program"] for event in await box.events("egress.request")]
    assert told == ["curl", "fetch.py", "fetch", "git-x"]
    only = {"allow": [{"host": "allowed.example", "programs": ["curl"], "ports": [server.port]}]}
    narrowed = narrowing_of(only, "only")
    await plane.egress.change(TESTER, box.session, narrowed, None)
    assert (await box.run(argv=["curl", "-sS", url])).stdout == "hello\n"
    denied = await box.run(argv=["./git-x", "-sS", url])
    assert "are for other programs than git-x" in denied.stdout
    assert "--program git-x" in denied.stdout
    (draft,) = box.session.egress_drafts
    assert draft.last.program == "git-x"
    # The one that finds names is out of the reach of commands, which have its user.
    reach = await box.run(argv=["python3", "-c", REACH])
    assert reach.value == {"signalled": [], "traced": []}, reach


async def test_a_budget_s_end_cuts_the_transfer(plane: ControlPlane, endless: Endless) -> None:
    box = await Box.create(plane, "out", budget={"egress_bytes": 1_000_000})
    command = await box.start(
        argv=[*FETCH, f"http://allowed.example:{endless.port}/"], background=True
    )
    await asyncio.wait_for(box.session.over, WAIT_SECONDS)
    assert box.session.status == "budget-exceeded"
    assert command.ended
    (event,) = await box.events("budget.exceeded")
    assert event["args"] == {
        "kind": "egress_bytes",
        "limit": 1_000_000,
        "consumed": 1_000_000,
        "unit": "count",
    }
    (closed,) = await box.events("egress.close")
    result = closed["result"]
    assert result["sent_bytes"] + result["received_bytes"] == 1_000_000
    await until(lambda: endless.open == 0)


async def test_a_pause_cuts_what_runs_and_a_resumed_session_goes_on(
    plane: ControlPlane, endless: Endless, server: Web
) -> None:
    box = await Box.create(plane, "out")
    url = f"http://allowed.example:{endless.port}/"
    command = await box.start(argv=[*FETCH, "--limit-rate", "1000", url], background=True)
    await until(lambda: endless.open == 1)
    await plane.sessions.pause(TESTER, box.session)
    await until(lambda: endless.open == 0)
    await plane.sessions.resume(TESTER, box.session)
    await box.finish(command)
    said = await box.run(f"curl -sS http://allowed.example:{server.port}/")
    assert said.stdout == "hello\n"
    (closed, _) = await until_closed(box, 2)
    assert closed["error"] == "cut"


async def test_the_end_of_a_command_ends_its_connections(
    plane: ControlPlane, server: Web, silent: Silent
) -> None:
    """Otherwise they would keep the way out from the session's next requests."""
    box = await Box.create(plane, "free")
    at = f"allowed.example:{silent.port}"
    argv = ["python3", "-c", OCCUPY, f"http://{at}/", at]
    command = await box.start(argv=argv, background=True)
    await until(lambda: silent.open == 64)
    await box.signal(command, 9)
    await box.finish(command)
    said = await box.run(argv=[*FETCH, f"http://allowed.example:{server.port}/"])
    assert said.stdout == "hello\n", said
    await until(lambda: silent.open == 0)
    ends = await until_closed(box, 65)
    assert [each["error"] for each in ends].count("the client has gone") == 64


async def test_a_client_that_has_sent_everything_gets_its_answer(
    plane: ControlPlane, silent: Silent
) -> None:
    box = await Box.create(plane, "free")
    at = f"allowed.example:{silent.port}"
    request = f"GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n"
    argv = ["python3", "-c", HALF_CLOSE, request]
    living = await box.start(argv=argv, background=True)
    await until(lambda: silent.open == 1)
    other = await box.start(argv=argv, background=True)
    await until(lambda: silent.open == 2)
    await box.signal(other, 9)
    # It has looked for its clients: this one has gone.
    await until(lambda: silent.open == 1)
    silent.answer_now()
    assert (await box.finish(living)).stdout.endswith("late\n\n")


async def test_a_slow_reader_holds_little(plane: ControlPlane, endless: Endless) -> None:
    box = await Box.create(plane, "out")
    url = f"http://allowed.example:{endless.port}/"
    command = await box.start(argv=[*FETCH, "--limit-rate", "1", url], background=True)
    await until(lambda: endless.open == 1 and endless.stalled.is_set())
    # Buffers of sockets included: two TCP connections and one UNIX connection.
    assert box.session.budget.used(Kind.EGRESS_BYTES) < 16 * 2**20
    await box.cancel(command)
    await until(lambda: endless.open == 0)


async def test_the_end_of_a_session_ends_its_connections(
    plane: ControlPlane, endless: Endless
) -> None:
    box = await Box.create(plane, "out")
    url = f"http://allowed.example:{endless.port}/"
    await box.start(argv=[*FETCH, "--limit-rate", "1000", url], background=True)
    await until(lambda: endless.open == 1)
    await box.close()
    await until(lambda: endless.open == 0)
    (closed,) = await box.events("egress.close")
    assert closed["error"] == "cut"


async def test_another_level_ends_its_connections_and_its_way_out(
    plane: ControlPlane, endless: Endless, server: Web
) -> None:
    box = await Box.create(plane, "out")
    url = f"http://allowed.example:{endless.port}/"
    await box.start(argv=[*FETCH, "--limit-rate", "1000", url], background=True)
    await until(lambda: endless.open == 1)
    await plane.sessions.changes.set_level(TESTER, box.session, "medium", {})
    await until(lambda: endless.open == 0)
    before = server.connections
    said = await box.run(f"curl -sS http://allowed.example:{server.port}/")
    assert "Rule: not-listed" in said.stdout
    assert server.connections == before
    await plane.sessions.changes.set_level(TESTER, box.session, "out", {})
    said = await box.run(f"curl -sS http://allowed.example:{server.port}/")
    assert said.stdout == "hello\n"


async def test_a_sandbox_that_waited_has_its_way_out(
    sandbox_image: str, levels: Path, server: Web
) -> None:
    async with opened(
        resolver=NamesResolver(NAMES),
        image=sandbox_image,
        levels_dir=levels,
        warm_sandboxes=1,
        warm_least={"out": 1},
    ) as plane:
        await until(lambda: "out" in {shape.level_name for shape in plane.pool.shapes})
        box = await Box.create(plane, "out")
        assert box.session.sandbox is not None
        assert box.session.sandbox.start == "warm"
        said = await box.run(f"curl -sS http://allowed.example:{server.port}/")
        assert said.stdout == "hello\n"
        # The next one is not interrupted in its start.
        await until(lambda: "out" in {shape.level_name for shape in plane.pool.shapes})


async def test_a_sandbox_keeps_its_way_out_over_a_restart(
    sandbox_image: str, levels: Path, server: Web, endless: Endless
) -> None:
    url = f"http://allowed.example:{endless.port}/"
    with state(image=sandbox_image, levels_dir=levels) as settings:
        async with running(settings, NamesResolver(NAMES)) as plane:
            box = await Box.create(plane, "out", id="again")
            await box.start(argv=[*FETCH, "--limit-rate", "1000", url], background=True)
            await until(lambda: endless.open == 1)
        assert endless.open == 0
        async with running(settings, NamesResolver(NAMES)) as plane:
            box = Box(plane, plane.sessions.finder.find(TESTER, "again"))
            said = await box.run(f"curl -sS http://allowed.example:{server.port}/")
            assert said.stdout == "hello\n"
            await until_closed(box, 2)
            await clear(plane)


async def until_closed(box: Box, number: int) -> list[dict[str, Any]]:
    """The ends of so many connections, once they are on record."""
    seq = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while len(found := await box.events("egress.close")) < number:
            seq = await box.plane.ledger.wait(box.session.key, seq)
    return found
