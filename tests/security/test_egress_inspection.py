"""Inspection, attacked from inside: no request that the rules do not allow reaches a server."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import Box
from tests.support.egress import Names, NamesResolver, Web, certificate, hello, level_with, web
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST = "allowed.example"
NAMES = Names()
# For each pair of a TLS name and raw bytes: opens a tunnel, sends the bytes within TLS, and prints
# the beginning of the answer.
RAW = """
import json, socket, ssl, sys
target, context, said = sys.argv[1], ssl.create_default_context(), []
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
context.set_alpn_protocols(["h2", "http/1.1"])
for name, text in json.load(sys.stdin):
    proxy = socket.create_connection(("127.0.0.1", 3128), 20)
    data = b""
    try:
        proxy.sendall(f"CONNECT {target} HTTP/1.1\\r\\n\\r\\n".encode())
        while not data.endswith(b"\\r\\n\\r\\n"):
            data += proxy.recv(1)
        data = b""
        with context.wrap_socket(proxy, server_hostname=name) as tls:
            tls.sendall(text.encode("latin-1"))
            while more := tls.recv(65536):
                data += more
    except OSError as error:
        data += repr(error).encode()
    said.append(data.decode("latin-1")[:300])
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inspected")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(directory: Path) -> AsyncIterator[Web]:
    async with web(hello(), certificate(directory, HOST)) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(sandbox_image: str, server: Web, directory: Path) -> AsyncIterator[Box]:
    NAMES.answers = {HOST: [["127.0.0.1"]]}
    rules = (
        f'\n[[egress.allow]]\nhost = "{HOST}"\nports = [{server.port}]\ninspect = true\n'
        'methods = ["GET", "POST"]\npaths = ["/in/**"]\n'
        f'\n[[egress.deny]]\nhost = "{HOST}"\npaths = ["/in/secret/**"]\n'
    )
    levels = directory / "levels"
    levels.mkdir()
    (levels / "free.toml").write_text(level_with(rules, "high", 310))
    roots = directory / "cert.pem"
    async with opened(
        resolver=NamesResolver(NAMES), image=sandbox_image, levels_dir=levels, ca_file=roots
    ) as plane:
        yield await create(plane)


async def create(plane: ControlPlane) -> Box:
    return await Box.create(plane, "free")


async def answers(box: Box, server: Web, *attempts: tuple[str, str]) -> list[str]:
    target = f"{HOST}:{server.port}"
    said = await box.run(
        argv=["python3", "-c", RAW, target], stdin=json.dumps(attempts), timeout=100
    )
    found: list[str] = said.value
    return found


def request(line: str, *fields: str, host: str = HOST) -> str:
    return "\r\n".join([f"{line} HTTP/1.1", f"Host: {host}", *fields, "", ""])


async def test_forbidden_requests_reach_no_server(box: Box, server: Web) -> None:
    texts = [
        request("DELETE /in/a"),
        request("GET /out"),
        request("GET /in/../out"),
        request("GET /in/%2e%2e/out"),
        request("GET /in/..%2fout"),
        request("GET /in/%252e%252e/out"),
        request("GET /in/..;/out"),
        request("GET /in/%c0%ae%c0%ae/out"),
        request("GET /in/secret/a"),
        request("GET /in/%73ecret/a"),
        request("GET //in/secret/a"),
        request("GET /in/a", "X-Original-URL: /out"),
        request("GET /in/a", "X-HTTP-Method-Override: DELETE"),
        request(f"GET http://{HOST}/in/a"),
        request("GET https://other.example/in/a", host="other.example"),
        request("GET /in/a", host="other.example"),
        request("GET /in/a", "Host: other.example"),
        request("CONNECT other.example:443"),
        request("POST /in/a", "Content-Length: 1", "Transfer-Encoding: chunked"),
        request("POST /in/a", "Transfer-Encoding : chunked"),
        request("GET /in/a", "X: a\n DELETE /in/b HTTP/1.1"),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    ]
    said = await answers(box, server, *((HOST, text) for text in texts))
    for text, answer in zip(texts, said, strict=True):
        assert answer.startswith(("HTTP/1.1 400 ", "HTTP/1.1 403 ")), (text, answer)
    assert (server.connections, server.received) == (0, [])


async def test_another_name_within_tls_reaches_no_server(box: Box, server: Web) -> None:
    before = server.connections
    said = await answers(box, server, ("other.example", request("GET /in/a")))
    assert not said[0].startswith("HTTP/1.1 ")
    assert server.connections == before


async def test_what_follows_an_allowed_request_is_not_passed_on(box: Box, server: Web) -> None:
    second = request("DELETE /in/second")
    said = await answers(
        box,
        server,
        (HOST, request("GET /in/a") + second),
        (HOST, request("POST /in/a", "Content-Length: 3") + "abc" + second),
        (HOST, request("POST /in/a", "Transfer-Encoding: chunked") + "0\r\n\r\n" + second),
        (HOST, request("GET /in/a", "Connection: Upgrade", "Upgrade: websocket") + second),
    )
    assert all(each.startswith("HTTP/1.1 200 ") for each in said), said
    received = b"".join(server.received)
    assert received.count(b" /in/a HTTP/1.1") == 4
    assert b"second" not in received
    assert b"pgrade" not in received
