"""The name servers of sandboxes, which must not reveal neighbours."""

import ipaddress
import json
import secrets
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import docker
import pytest
import pytest_asyncio

from orchestrator.control_plane import ControlPlane
from orchestrator.host.engine import docker_links, docker_namespaces, docker_resolvers
from orchestrator.host.engine.docker_helper import run_helper
from orchestrator.host.engine.docker_resolvers import ENGINES_OWN
from orchestrator.settings.resolvers import usable
from tests.support.attempts import attempt
from tests.support.box import TESTER, Box
from tests.support.limits import PROGRAM_SECONDS
from tests.support.name_server import EVERYBODY, name_server
from tests.support.open_networks import interface
from tests.support.plane import opened

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Prints for each question [server, port, "udp" | "tcp", type, name] the number of answers, or
# null if there was no reply.
ASK = """
import json, socket, struct, sys
def question(kind, name):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    head = struct.pack("!HHHHHH", 7, 0x100, 1, 0, 0, 0)
    return head + labels + struct.pack("!BHH", 0, kind, 1)
def one(server, port, transport, kind, name):
    asked = question({"A": 1, "PTR": 12}[kind], name)
    udp = transport == "udp"
    form = socket.SOCK_DGRAM if udp else socket.SOCK_STREAM
    try:
        with socket.socket(socket.AF_INET, form) as peer:
            peer.settimeout(5)
            peer.connect((server, port))
            peer.sendall(asked if udp else struct.pack("!H", len(asked)) + asked)
            said = peer.recv(4096)
            if not udp:
                said = said[2:] or peer.recv(4096)
            return struct.unpack_from("!H", said, 6)[0]
    except (OSError, struct.error):
        return None
print(json.dumps([one(*wanted) for wanted in json.loads(sys.argv[1])]))
"""
LOOK_UP = """
import socket, sys
try:
    print(socket.gethostbyname(sys.argv[1]))
except OSError:
    print("nobody")
"""


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=PROGRAM_SECONDS)


@pytest.fixture(scope="module")
def resolver() -> Iterator[str]:
    """An address of the host where the operator's name server answers."""
    address = f"198.18.{secrets.randbelow(250)}.{1 + secrets.randbelow(250)}"
    ip("address", "add", f"{address}/32", "dev", "lo")
    try:
        with name_server(address):
            yield address
    finally:
        ip("address", "del", f"{address}/32", "dev", "lo")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(sandbox_image: str, resolver: str) -> AsyncIterator[ControlPlane]:
    async with opened(image=sandbox_image, resolvers=(resolver,)) as plane:
        yield plane


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def box(plane: ControlPlane) -> Box:
    return await Box.create(plane, "high")


@pytest.fixture(scope="module")
def client() -> Iterator[docker.APIClient]:
    with closing(docker.APIClient(version="auto")) as client:
        yield client


def inside(box: Box, path: str) -> str:
    """The content of a file in the sandbox."""
    return Path(f"/proc/{box.agent().pid}/root{path}").read_text()


def ports(box: Box) -> list[tuple[str, int]]:
    """Protocols and ports of the engine's name server in the sandbox; port 53 is redirected."""
    own = f"{int.from_bytes(ipaddress.IPv4Address(ENGINES_OWN).packed, 'little'):08X}"
    found = [("udp", 53), ("tcp", 53)]
    for protocol in ("udp", "tcp"):
        table = Path(f"/proc/{box.agent().pid}/net/{protocol}").read_text()
        for line in table.splitlines()[1:]:
            address, port = line.split()[1].split(":")
            if address == own:
                found.append((protocol, int(port, 16)))
    return found


def neighbour_questions(facts: dict[str, Any], network: str) -> list[tuple[str, str]]:
    """Questions that would reveal a container, from its inspection."""
    settings = facts["NetworkSettings"]["Networks"].get(network) or {}
    name = facts["Name"].lstrip("/")
    names = {name, facts["Id"][:12], facts["Config"]["Hostname"], *(settings.get("Aliases") or ())}
    names |= {f"{one}.{network}" for one in names}
    address = interface(facts)["addr_info"][0]["local"]
    reverse = ipaddress.IPv4Address(address).reverse_pointer
    return [*(("A", one) for one in sorted(names)), ("PTR", reverse)]


def seen_without_measures(
    client: docker.APIClient, image: str, network: str, questions: list[Any]
) -> list[int | None]:
    """The answers that a container without Paddock's measures gets on that network."""
    made = client.create_container(
        image,
        entrypoint=["python3", "-c", ASK, json.dumps(questions)],
        host_config=client.create_host_config(network_mode=network, cap_drop=["ALL"]),
    )
    try:
        client.start(made["Id"])
        client.wait(made["Id"], timeout=PROGRAM_SECONDS)
        answers: list[int | None] = json.loads(client.logs(made["Id"]))
        return answers
    finally:
        client.remove_container(made["Id"], force=True)


@attempt(
    "names of neighbours, of the engine's own name server, by UDP and TCP, on port 53 and its own",
    layer="packet filter",
    levels="high",
)
@pytest.mark.parametrize("way", ["the host's programs", "a helper container", "a link of ours"])
async def test_nobody_names_a_neighbour(
    plane: ControlPlane,
    client: docker.APIClient,
    sandbox_image: str,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    helpers: list[str] = []

    def helper(client: docker.APIClient, name: str, config: dict[str, Any], failed: str) -> str:
        helpers.append(name)
        return run_helper(client, name, config, failed)

    monkeypatch.setattr(docker_resolvers, "run_helper", helper)
    if way == "a helper container":
        # As in a control plane that runs in a container.
        monkeypatch.setattr(docker_namespaces, "_PATH", "/nowhere")
    if way != "a link of ours":
        monkeypatch.setattr(docker_links, "_ENGINES", Path("/nowhere"))
    await plane.engine.ensure_open_network(sandbox_image, renew=True)
    box = await Box.create(plane, "high")
    assert bool(helpers) is (way == "a helper container")
    neighbour = await Box.create(plane, "high")
    assert box.session.sandbox is not None
    network = box.session.sandbox.network
    assert network is not None
    facts = client.inspect_container(neighbour.container_id)
    asked = neighbour_questions(facts, network)
    assert len(asked) >= (4 if way == "a link of ours" else 6)

    listening = ports(box)
    if way == "a link of ours":
        assert len(listening) == 2, "the engine's name server is in the sandbox"
    else:
        engines = [(ENGINES_OWN, 53, "udp", *one) for one in asked]
        told = seen_without_measures(client, sandbox_image, network, engines)
        assert told.count(None) == 0
        assert all(told[index] for index, one in enumerate(asked) if one[1] == facts["Name"][1:])
        assert told[-1], "the test shows nothing"
        assert len(listening) == 4, "the engine's name server listens where the test does not look"
    questions = [
        (ENGINES_OWN, port, protocol, *one) for protocol, port in listening for one in asked
    ]
    answers = (await box.python(ASK, json.dumps(questions))).value
    assert answers == [None] * len(questions)

    # Its other sources of names do not reveal the neighbour either.
    for path in ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf"):
        text = (await box.run(argv=["cat", path])).stdout
        assert facts["Id"][:12] not in text
        assert facts["Name"][1:] not in text
    assert (await box.run(argv=["cat", "/proc/sys/kernel/domainname"])).stdout == "(none)\n"
    assert (await box.run(argv=["uname", "-n"])).stdout == "sandbox\n"
    await neighbour.close()
    await box.close()


async def test_the_operators_name_server_answers(box: Box, resolver: str) -> None:
    assert inside(box, "/etc/resolv.conf") == f"nameserver {resolver}\n"
    assert (await box.python(LOOK_UP, "paddock.example")).stdout.strip() == EVERYBODY
    questions = [(resolver, 53, protocol, "A", "a.example") for protocol in ("udp", "tcp")]
    assert (await box.python(ASK, json.dumps(questions))).value == [1, 1]
    # Only port 53 of that machine is open.
    with closing(socket.create_server((resolver, 0))) as server:
        other = (resolver, server.getsockname()[1])
        script = "import socket, sys; socket.create_connection(sys.argv[1:], timeout=2)"
        assert (await box.python(script, *map(str, other))).exit_code == 1
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()


async def test_without_a_network_there_is_no_name_server(plane: ControlPlane) -> None:
    for level in ("low", "medium"):
        box = await Box.create(plane, level)
        assert "nameserver" not in inside(box, "/etc/resolv.conf")
        assert len(ports(box)) == 2
        await box.close()


async def test_a_level_change_brings_the_name_server_and_takes_it(
    plane: ControlPlane, resolver: str
) -> None:
    box = await Box.create(plane, "low")
    for level, told in (("high", True), ("medium", False)):
        await plane.sessions.changes.set_level(TESTER, box.session, level, {})
        assert (resolver in inside(box, "/etc/resolv.conf")) is told
    await box.close()


async def test_the_hosts_name_servers_are_the_default(sandbox_image: str) -> None:
    async with opened(image=sandbox_image) as plane:
        box = await Box.create(plane, "high")
        named = usable(inside(box, "/etc/resolv.conf"))
        hosts = usable(Path("/etc/resolv.conf").read_text())
        # If the host is its own name server, the real servers are configured elsewhere.
        assert named == hosts or not hosts
        assert ENGINES_OWN not in named
        await box.close()
