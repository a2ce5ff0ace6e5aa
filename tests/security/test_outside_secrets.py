"""A secret that is put in outside: its host receives it, and nothing of the sandbox has it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from pydantic import SecretStr

from orchestrator.control_plane import ControlPlane
from orchestrator.settings.operator_secrets import SecretUse
from orchestrator.state.secret import Holder
from tests.support.box import TESTER, Box
from tests.support.egress import Names, NamesResolver, Web, certificate, hello, level_with, web
from tests.support.plane import clear, running, state

pytestmark = pytest.mark.asyncio(loop_scope="module")

HOST, OTHER = "api.example", "other.example"
VALUE = "sk-canary-" + "7d1f" * 8
# Set over the API.
OWN = "sk-canary-" + "3b9c" * 8
NAMES = Names()
# Says where the argument's text is: in files, in variables, or in the memory of processes. The text
# comes in two halves, so that the search does not find itself.
SEARCH = r"""
import os, re, sys
wanted, found = (sys.argv[1] + sys.argv[2]).encode(), []
for top in ("/workspace", "/tmp", "/run", "/etc", "/dev/shm", "/var"):
    for directory, _, names in os.walk(top):
        for name in names:
            path = os.path.join(directory, name)
            try:
                if os.path.isfile(path) and wanted in open(path, "rb").read():
                    found.append(path)
            except OSError:
                pass
for process in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            if wanted in open(f"/proc/{process}/{name}", "rb").read():
                found.append(f"{process}/{name}")
        except OSError:
            pass
print(found)
"""
CALL = """
import os, urllib.request as r
request = r.Request(os.environ["URL"], headers={"Authorization": "Bearer " + os.environ["KEY"]})
print(r.urlopen(request).read().decode(), os.environ["KEY"])
"""
CALL_OWN = CALL.replace('"KEY"', '"OWN"')


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outside")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(directory: Path) -> AsyncIterator[dict[str, Web]]:
    """Servers with a certificate each."""
    NAMES.answers = {HOST: [["127.0.0.1"]], OTHER: [["127.0.0.1"]]}
    contexts = {}
    for name in (HOST, OTHER):
        place = directory / name
        place.mkdir()
        contexts[name] = certificate(place, name)
    async with web(hello(), contexts[HOST]) as one, web(hello(), contexts[OTHER]) as other:
        yield {HOST: one, OTHER: other}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plane(
    sandbox_image: str, servers: dict[str, Web], directory: Path
) -> AsyncIterator[ControlPlane]:
    levels = directory / "levels"
    levels.mkdir()
    rules = "".join(
        f'\n[[egress.allow]]\nhost = "{name}"\nports = [{server.port}]\ninspect = true\n'
        for name, server in servers.items()
    )
    (levels / "free.toml").write_text(level_with(rules, "high", 310))
    (levels / "also.toml").write_text(level_with(rules, "high", 320))
    (directory / "key").write_text(f"{VALUE}\n")
    roots = directory / "roots.pem"
    roots.write_bytes(b"".join((directory / name / "cert.pem").read_bytes() for name in servers))
    secret = {"file": directory / "key", "hosts": [HOST], "levels": ["free"], "variable": "KEY"}
    members = {"levels_dir": levels, "ca_file": roots, "secrets": {"openai": secret}}
    with state(image=sandbox_image, **members) as settings:
        async with running(settings, NamesResolver(NAMES)) as plane:
            use = SecretUse(hosts=(HOST,), levels=("free",), variable="OWN")
            await plane.secrets.set(TESTER, Holder(), "own", use, SecretStr(OWN))
            yield plane
            await clear(plane)
        # All that is kept: the ledger, records, and whatever else.
        for path in settings.state_dir.rglob("*"):
            if path.is_file():
                data = path.read_bytes()
                assert VALUE.encode() not in data, path
                assert OWN.encode() not in data, path


def url(servers: dict[str, Web], name: str) -> str:
    return f"https://{name}:{servers[name].port}/v1"


async def test_only_its_host_receives_it(
    plane: ControlPlane, servers: dict[str, Web], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    box = await Box.create(plane, "free")
    said = await box.run(argv=["python3", "-c", CALL], env={"URL": url(servers, HOST)})
    assert said.stdout == "hello\n paddock:openai\n", said
    assert f"Authorization: Bearer {VALUE}\r\n".encode() in servers[HOST].received[-1]
    said = await box.run(argv=["python3", "-c", CALL], env={"URL": url(servers, OTHER)})
    assert said.stdout == "hello\n paddock:openai\n", said
    assert b"Authorization: Bearer paddock:openai\r\n" in servers[OTHER].received[-1]
    said = await box.run(argv=["python3", "-c", CALL_OWN], env={"URL": url(servers, HOST)})
    assert said.stdout == "hello\n paddock:own\n", said
    assert f"Authorization: Bearer {OWN}\r\n".encode() in servers[HOST].received[-1]
    named, unnamed, own = await box.events("egress.request")
    assert own["args"]["secrets"] == ["own"]
    assert named["args"]["secrets"] == ["openai"]
    assert "secrets" not in unnamed["args"]
    assert VALUE not in caplog.text
    assert OWN not in caplog.text


async def test_another_level_has_neither_value_nor_placeholder(
    plane: ControlPlane, servers: dict[str, Web]
) -> None:
    box = await Box.create(plane, "also")
    assert "paddock:openai" not in (await box.run(argv=["env"])).stdout
    given = {"URL": url(servers, HOST), "KEY": "paddock:openai"}
    await box.run(argv=["python3", "-c", CALL], env=given)
    assert b"Authorization: Bearer paddock:openai\r\n" in servers[HOST].received[-1]


async def test_it_is_nowhere_in_the_sandbox(plane: ControlPlane, servers: dict[str, Web]) -> None:
    box = await Box.create(plane, "free")
    for program in (CALL, CALL_OWN):
        await box.run(argv=["python3", "-c", program], env={"URL": url(servers, HOST)})
    # The search finds what is there.
    await box.write("canary", f"{VALUE[:-1]}+".encode())
    found = f"{VALUE[:-1]}+"
    for text, places in ((found, "['/workspace/canary']\n"), (VALUE, "[]\n"), (OWN, "[]\n")):
        said = await box.run(argv=["python3", "-c", SEARCH, text[:9], text[9:]])
        assert said.stdout == places, said
    assert box.session.sandbox is not None
    assert memory_with(box, b"paddock-egress"), "the search sees the agent's memory"
    assert memory_with(box, VALUE.encode()) == []
    assert memory_with(box, OWN.encode()) == []


def memory_with(box: Box, wanted: bytes) -> list[str]:
    """The memory of the sandbox's processes in which a text is, seen from the host."""
    assert box.session.sandbox is not None
    first = box.session.sandbox.first
    assert first is not None
    found = []
    for pid in _processes(first.pid):
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            start, _, end = line.split()[0].partition("-")
            with open(f"/proc/{pid}/mem", "rb") as memory:
                try:
                    memory.seek(int(start, 16))
                    data = memory.read(int(end, 16) - int(start, 16))
                except (OSError, OverflowError, ValueError):
                    continue  # pages of the kernel
            if wanted in data:
                found.append(line)
    return found


def _processes(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in _processes(int(child)))]
