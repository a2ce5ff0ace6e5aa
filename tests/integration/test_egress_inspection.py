"""Inspected requests of real sandboxes: programs trust the proxy, and rules see each request."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from tests.support.box import TESTER, Box
from tests.support.egress import Names, NamesResolver, Web, certificate, hello, level_with, web
from tests.support.plane import clear, opened, running, state
from tests.support.until import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST, OTHER = "allowed.example", "unread.example"
NAMES = Names()
# Prints what a URL answers, and the issuer of the certificate.
URLLIB = """
import http.client, sys, urllib.request
print(urllib.request.urlopen(sys.argv[1]).read().decode(), end="")
host, _, port = sys.argv[1].split("/")[2].partition(":")
connection = http.client.HTTPSConnection("127.0.0.1", 3128)
connection.set_tunnel(host, int(port))
connection.connect()
certificate = connection.sock.getpeercert()
print(dict(pair for part in certificate["issuer"] for pair in part)["commonName"])
"""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With certificates of two hosts, and both as roots in `roots.pem`."""
    return tmp_path_factory.mktemp("tls")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(directory: Path) -> AsyncIterator[Web]:
    place = directory / HOST
    place.mkdir()
    async with web(hello(), certificate(place, HOST)) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def unread(directory: Path) -> AsyncIterator[Web]:
    place = directory / OTHER
    place.mkdir()
    async with web(hello(), certificate(place, OTHER)) as served:
        yield served


@pytest.fixture(scope="module")
def settings(
    sandbox_image: str, directory: Path, server: Web, unread: Web
) -> dict[str, str | Path]:
    """Levels that inspect one host and not the other; `bare` inspects nothing."""
    NAMES.answers = {HOST: [["127.0.0.1"]], OTHER: [["127.0.0.1"]]}
    levels = directory / "levels"
    levels.mkdir()
    plain = f'\n[[egress.allow]]\nhost = "{OTHER}"\nports = [{unread.port}]\n'
    rules = (
        f'\n[[egress.allow]]\nhost = "{HOST}"\nports = [{server.port}]\ninspect = true\n'
        f'methods = ["GET"]\npaths = ["/in/**"]\n{plain}'
    )
    (levels / "out.toml").write_text(level_with(rules))
    (levels / "free.toml").write_text(level_with(rules, "high", 310))
    (levels / "bare.toml").write_text(level_with(plain, "high", 320))
    roots = directory / "roots.pem"
    roots.write_bytes(b"".join((directory / n / "cert.pem").read_bytes() for n in (HOST, OTHER)))
    return {"image": sandbox_image, "levels_dir": levels, "ca_file": roots}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(settings: dict[str, str | Path]) -> AsyncIterator[ControlPlane]:
    async with opened(resolver=NamesResolver(NAMES), **settings) as plane:
        yield plane


async def test_curl_is_inspected_and_each_request_is_on_record(
    plane: ControlPlane, server: Web
) -> None:
    box = await Box.create(plane, "out")
    before = len(server.received)
    said = await box.run(f"curl -sS https://{HOST}:{server.port}/in/a?token=x")
    assert (said.exit_code, said.stdout) == (0, "hello\n"), said
    denied = await box.run(f"curl -sS https://{HOST}:{server.port}/out")
    assert "Rule: not-listed" in denied.stdout, denied
    assert 'methods = ["GET"] and paths = ["/out"]' in denied.stdout
    (first,) = server.received[before:]
    assert first.startswith(b"GET /in/a?token=x HTTP/1.1\r\n")
    allowed, refused = await box.events("egress.request")
    assert allowed["rule"] == f"allow {HOST}:{server.port} GET /in/**"
    members = ("method", "path", "inspected", "addresses")
    assert [allowed["args"][name] for name in members] == ["GET", "/in/a", True, ["127.0.0.1"]]
    assert (refused["decision"], refused["args"]["method"]) == ("deny", "GET")


async def test_what_no_rule_inspects_is_passed_through_unread(
    plane: ControlPlane, server: Web, unread: Web
) -> None:
    box = await Box.create(plane, "free")
    said = await box.python(URLLIB, f"https://{HOST}:{server.port}/in/x")
    assert said.stdout == "hello\nPaddock inspection\n", said
    said = await box.python(URLLIB, f"https://{OTHER}:{unread.port}/anything")
    assert said.stdout == f"hello\n{OTHER}\n", said
    *_, event = await box.events("egress.request")
    assert (event["args"]["method"], "path" in event["args"]) == ("CONNECT", False)


async def test_a_body_arrives_and_a_large_answer_returns(plane: ControlPlane, server: Web) -> None:
    box = await Box.create(plane, "free")
    before, server.answer = server.answer, large(5_000_000)
    try:
        url = f"https://{HOST}:{server.port}/in/large"
        said = await box.run(argv=["sh", "-c", f"curl -sS {url} | wc -c"])
        assert said.stdout.strip() == "5000000", said
    finally:
        server.answer = before


async def test_sandboxes_have_the_certificate_and_not_the_key(plane: ControlPlane) -> None:
    box = await Box.create(plane, "free")
    said = await box.run(argv=["sh", "-c", "ls /run/paddock-ca; env | grep -c /run/paddock-ca"])
    assert said.stdout == "bundle.pem\nca.pem\n8\n"
    key = "PRIVATE" + " KEY"
    said = await box.run(argv=["grep", "-rl", key, "/run/paddock-ca", "/etc/passwd", "/tmp"])
    assert (said.exit_code, said.stdout) == (1, "")
    written = await box.run(argv=["sh", "-c", "echo x > /run/paddock-ca/ca.pem"])
    assert written.exit_code != 0


async def test_without_inspection_programs_keep_their_own_roots(plane: ControlPlane) -> None:
    box = await Box.create(plane, "bare")
    said = await box.run(argv=["sh", "-c", "ls -d /run/paddock-ca; env"])
    assert "paddock-ca" not in said.stdout
    assert "http_proxy=" in said.stdout


async def test_the_authority_is_the_same_after_a_restart(
    settings: dict[str, str | Path], server: Web
) -> None:
    fetch = f"curl -sS https://{HOST}:{server.port}/in/a"
    with state(**settings) as checked:
        async with running(checked, NamesResolver(NAMES)) as plane:
            box = await Box.create(plane, "out", id="again")
            assert (await box.run(fetch)).stdout == "hello\n"
        async with running(checked, NamesResolver(NAMES)) as plane:
            box = Box(plane, plane.sessions.finder.find(TESTER, "again"))
            assert (await box.run(fetch)).stdout == "hello\n"
            await clear(plane)


async def test_a_sandbox_that_waited_trusts_the_proxy(
    settings: dict[str, str | Path], server: Web
) -> None:
    async with opened(
        resolver=NamesResolver(NAMES), warm_sandboxes=1, warm_least={"out": 1}, **settings
    ) as plane:
        await until(lambda: "out" in {shape.level_name for shape in plane.pool.shapes})
        box = await Box.create(plane, "out")
        assert box.session.sandbox is not None
        assert box.session.sandbox.start == "warm"
        said = await box.run(f"curl -sS https://{HOST}:{server.port}/in/a")
        assert said.stdout == "hello\n"
        await until(lambda: "out" in {shape.level_name for shape in plane.pool.shapes})


def large(size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (size, b"y" * size)
