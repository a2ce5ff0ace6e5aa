"""Ports of real sandboxes: a web server, WebSockets, much data, restarts."""

import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import TESTER, Box
from tests.support.egress import level_with
from tests.support.plane import clear, opened, running, state
from tests.support.ports import WEBSOCKET, listening, opened_port, web_server
from tests.support.previews import Previews, previews
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

_MIB = 2**20
ON_IPV6 = """
import http.server, socket
class Server(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6
server = Server(("::1", 8000), http.server.SimpleHTTPRequestHandler)
print("ready", flush=True)
server.serve_forever()
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shown(control_plane: ControlPlane) -> AsyncIterator[Previews]:
    async with previews(control_plane) as found:
        yield found


async def test_a_web_server_in_a_sandbox(control_plane: ControlPlane, shown: Previews) -> None:
    box = await Box.create(control_plane, "high")
    await box.mkdir("sub")
    await box.write("sub/index.html", b"<h1>inside</h1>")
    server = await web_server(box)
    port = await opened_port(box, shown, 8000)
    assert await (await port.get("/sub/")).text() == "<h1>inside</h1>"
    moved = await port.get("/sub")
    assert (moved.status, moved.headers["Location"]) == (301, f"{port.link}/sub/")
    assert (await port.get("/absent")).status == 404
    await box.cancel(server)
    refused = await port.get("/sub/")
    assert refused.status == 502
    assert "Nothing listens on port 8000" in await refused.text()
    await box.close()
    assert (await port.get("/sub/")).status == 401
    (closed,) = await box.events("port.close")
    assert closed["result"] == {"reason": "session ended", "requests": 4}


async def test_a_program_on_the_other_loopback_address(
    control_plane: ControlPlane, shown: Previews
) -> None:
    box = await Box.create(control_plane, "high")
    await box.write("index.html", b"six")
    await listening(box, "python3", "-c", ON_IPV6, ready="ready")
    port = await opened_port(box, shown, 8000)
    assert await (await port.get("/")).text() == "six"
    await box.close()


async def test_without_any_network(sandbox_image: str, tmp_path: Path) -> None:
    """At a level whose sandboxes have nothing but loopback, also one that was started ahead."""
    text = level_with("", "high", 310).replace('network = "egress"', 'network = "none"')
    (tmp_path / "alone.toml").write_text(text)
    async with (
        opened(
            image=sandbox_image,
            levels_dir=tmp_path,
            warm_sandboxes=1,
            warm_least={"alone": 1},
        ) as plane,
        previews(plane) as shown,
    ):
        await until(lambda: "alone" in {shape.level_name for shape in plane.pool.shapes})
        box = await Box.create(plane, "alone")
        assert box.session.sandbox is not None
        assert box.session.sandbox.start == "warm"
        await box.write("index.html", b"alone")
        await web_server(box)
        port = await opened_port(box, shown, 8000)
        assert await (await port.get("/")).text() == "alone"
        await until(lambda: "alone" in {shape.level_name for shape in plane.pool.shapes})


async def test_a_websocket_in_a_sandbox(control_plane: ControlPlane, shown: Previews) -> None:
    box = await Box.create(control_plane, "high")
    await listening(box, "python3", "-c", WEBSOCKET, ready="ready")
    port = await opened_port(box, shown, 8765)
    async with shown.client.ws_connect(f"{shown.origin}{port.link}/socket") as socket:
        for text in ("hello", "x" * 10_000):
            await socket.send_str(text)
            assert await socket.receive_str() == text
    await box.close()


async def test_much_data_takes_little_memory(control_plane: ControlPlane, shown: Previews) -> None:
    box = await Box.create(control_plane, "high")
    await box.bash("head -c 52428800 /dev/urandom > big")
    await web_server(box)
    port = await opened_port(box, shown, 8000)
    own, most = psutil.Process(), 0
    before = own.memory_info().rss
    seen, size = hashlib.sha256(), 0
    answer = await port.get("/big")
    async for chunk in answer.content.iter_chunked(_MIB):
        seen.update(chunk)
        size += len(chunk)
        most = max(most, own.memory_info().rss)
    assert size == 50 * _MIB
    said = await box.run("sha256sum big")
    assert said.stdout.split()[0] == seen.hexdigest()
    assert most - before < 16 * _MIB
    await box.close()


async def test_many_requests_at_once(control_plane: ControlPlane, shown: Previews) -> None:
    box = await Box.create(control_plane, "high")
    await box.write("index.html", b"x" * 1000)
    await web_server(box)
    port = await opened_port(box, shown, 8000)
    answers = [await port.get("/") for _ in range(40)]
    assert {answer.status for answer in answers} == {200}
    assert all([await answer.read() == b"x" * 1000 for answer in answers])
    await box.close()


async def test_a_pause_and_another_level(control_plane: ControlPlane, shown: Previews) -> None:
    box = await Box.create(control_plane, "high")
    await box.write("index.html", b"before")
    await web_server(box)
    port = await opened_port(box, shown, 8000)
    assert (await port.get("/")).status == 200
    await control_plane.sessions.pause(TESTER, box.session)
    assert (await port.get("/")).status == 503
    await control_plane.sessions.resume(TESTER, box.session)
    assert (await port.get("/")).status == 200
    await control_plane.sessions.changes.set_level(TESTER, box.session, "medium", {})
    assert (await port.get("/")).status == 502
    await control_plane.sessions.changes.set_level(TESTER, box.session, "high", {})
    await web_server(box)
    assert await (await port.get("/")).text() == "before"
    await box.close()


async def test_ports_stay_open_over_a_restart(sandbox_image: str) -> None:
    with state(image=sandbox_image) as settings:
        async with running(settings) as plane, previews(plane) as shown:
            box = await Box.create(plane, "high", id="again")
            await box.write("index.html", b"again")
            await web_server(box)
            port = await opened_port(box, shown, 8000)
            assert (await port.get("/")).status == 200
        async with running(settings) as plane, previews(plane) as shown:
            for _ in range(2):
                answer = await shown.get(f"{port.link}/")
                assert await answer.text() == "again"
            await clear(plane)
