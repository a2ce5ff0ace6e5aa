"""Ports, attacked from inside the sandbox and from outside: only what is open is reached, only by
those who may, and no program learns a credential or gets more than its own answers.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import TESTER, Box
from tests.support.ports import OpenBox, listening, opened_port, web_server
from tests.support.previews import Previews, previews
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

PORTS_UID = 991
# Keeps every byte that it receives, in the workspace, and answers with it.
MIRROR = """
import socketserver
class Mirror(socketserver.StreamRequestHandler):
    def handle(self):
        head = b""
        while (line := self.rfile.readline()) not in (b"\\r\\n", b""):
            head += line
        open("received", "ab").write(head)
        self.wfile.write(b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(head) + head)
server = socketserver.ThreadingTCPServer(("127.0.0.1", 8001), Mirror)
print("ready", flush=True)
server.serve_forever()
"""
# Attacks what belongs to the ports' process; prints what worked.
INSIDE = """
import json, os, signal, socket, sys
worked, seen = [], 0
def attempt(name, action):
    try:
        action()
    except OSError:
        return
    worked.append(name)
def unix(path):
    with socket.socket(socket.AF_UNIX) as direct:
        direct.connect(path)
attempt("the socket", lambda: unix("/run/paddock-ports/ports.sock"))
attempt("its directory", lambda: os.listdir("/run/paddock-ports"))
attempt("another in its place", lambda: os.mkdir("/run/paddock-ports/x"))
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{name}/status").read().split()
    except OSError:
        continue
    if words[words.index("Uid:") + 1] == "991":
        seen += 1
        attempt("killed", lambda: os.kill(int(name), signal.SIGKILL))
        attempt("memory", lambda: open(f"/proc/{name}/mem", "rb"))
        attempt("files", lambda: os.listdir(f"/proc/{name}/fd"))
        attempt("root", lambda: os.listdir(f"/proc/{name}/root/run/paddock-ports"))
print(json.dumps([seen, worked]))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(control_plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(control_plane) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mirror(control_plane: ControlPlane, shown: Previews) -> OpenBox:
    """A session whose program at port 8001 keeps what it receives."""
    box = await Box.create(control_plane, "high")
    await listening(box, "python3", "-c", MIRROR, ready="ready")
    return await opened_port(box, shown, 8001)


async def test_no_credential_arrives_in_the_sandbox(mirror: OpenBox) -> None:
    token = mirror.token
    tricks = {
        "Authorization": f"Bearer {token}",
        "Cookie": "a=1",
        "Connection": "X-Secret",
        "X-Secret": token,
        "Referer": f"http://x{mirror.link}/",
    }
    target = f"{mirror.link}/?a=1"
    for method in ("POST", "OPTIONS"):
        answer = await mirror.shown.ask(method, target, headers=tricks)
        said = await answer.text()
        assert said.startswith(f"{method} /?a=1 HTTP/1.1")
        assert "Cookie: a=1\r\n" in said
    await mirror.get("/plain")
    assert token.encode() not in await mirror.box.read("received")


async def test_commands_reach_nothing_of_the_ports_process(mirror: OpenBox) -> None:
    said = await mirror.box.python(INSIDE)
    assert said.value == [1, []]
    assert (await mirror.get("/")).status == 200


async def test_a_link_reaches_no_other_session(
    control_plane: ControlPlane, mirror: OpenBox
) -> None:
    other = await Box.create(control_plane, "high")
    await other.write("canary", b"canary")
    await web_server(other)
    await control_plane.ports.open(TESTER, other.session, 8000, 600)
    own = mirror.link
    for target in (
        f"/s/{other.session.id}/8000/canary",
        f"/s/{other.session.id}/8000/~{mirror.token}/canary",
        f"{own}/../../{other.session.id}/8000/canary",
        f"{own}/%2e%2e/%2e%2e/{other.session.id}/8000/canary",
        f"//s/{other.session.id}/8000/canary",
        f"/s/{mirror.box.session.id}/../{other.session.id}/8000/canary",
        f"/s/{mirror.box.session.id}%2f..%2f{other.session.id}/8000/canary",
        f"/http://localhost/s/{other.session.id}/8000/canary",
    ):
        answer = await mirror.shown.get(target)
        body = await answer.text()
        assert answer.status in (200, 401, 404), target
        # Only the mirror may have answered, with what it was sent.
        assert body != "canary"
        assert answer.status != 200 or body.startswith("GET /")
    assert [event["result"]["requests"] for event in await other.events("port.close")] == []
    assert other.session.ports.open[8000].requests == 0
    await other.close()


async def test_a_port_that_is_not_open_is_not_reached(
    control_plane: ControlPlane, shown: Previews, mirror: OpenBox
) -> None:
    await web_server(mirror.box, 8002)
    target = f"/s/{mirror.box.session.id}/8002/~{mirror.token}/"
    assert (await shown.get(target)).status == 401
    # Nor one of the host itself, whose loopback is another.
    assert control_plane.previews.url is not None
    own = int(control_plane.previews.url.rpartition(":")[2])
    host = await opened_port(mirror.box, shown, own)
    assert (await host.get("/")).status == 502


@pytest.mark.parametrize(
    ("target", "header"),
    [
        ("%0d%0aX-Evil:%201", "a"),
        ("", "a\rX-Evil: 1"),
        ("", "a\r X-Evil: 1"),
        ("", "a\x00b\rX-Evil: 1"),
        ("?a\rX-Evil: 1", "a"),
        ("", "a\r\nContent-Length: 30\r\nTransfer-Encoding: chunked"),
        ("", "a\r\nContent-Length: 3\r\nContent-Length: 30"),
        ("", "a\r\nTransfer-Encoding: chunked, identity"),
        ("", "a\r\nTransfer-Encoding : chunked"),
    ],
)
async def test_nothing_smuggles_a_request_or_header_into_the_sandbox(
    mirror: OpenBox, target: str, header: str
) -> None:
    """Raw bytes, because no client sends them."""
    host, port = mirror.shown.origin.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    request = (
        f"POST {mirror.link}/{target} HTTP/1.1\r\nHost: localhost\r\nX-Own: {header}\r\n"
        "Connection: close\r\n\r\n"
        "0\r\n\r\nGET /smuggled HTTP/1.1\r\nX-Evil: 1\r\n\r\n"
    )
    writer.write(request.encode())
    with contextlib.suppress(ConnectionError):
        await reader.read()
    writer.close()
    received = (await mirror.box.read("received")).replace(b"\r", b"\n")
    assert b"\nX-Evil" not in received
    assert b"\nGET /smuggled" not in received


async def test_a_killed_process_of_the_ports_is_started_again(mirror: OpenBox) -> None:
    """By the host, since no command can."""
    assert (await mirror.get("/")).status == 200
    (process,) = [each for each in mirror.box.agent().children() if each.uids().real == PORTS_UID]
    process.kill()
    await until(lambda: not process.is_running())
    assert (await mirror.get("/")).status == 200
    assert json.loads((await mirror.box.python(INSIDE)).stdout)[0] == 1
