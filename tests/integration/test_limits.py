"""Limits that are stated, at their value, in real sandboxes: it works there, and not above."""

import hashlib
import io
import json
import tarfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import WSServerHandshakeError

from orchestrator.sandbox.ports.limits import PORT_LIMITS
from orchestrator.state.family import MAX_CHILDREN
from orchestrator.state.session import MAX_RUNNING
from orchestrator.work.terminals.shell import SHELL_LIMITS
from orchestrator.work.terminals.viewers import MOST_VIEWERS
from paddock.contract import pack_form
from paddock.contract.words import ARGUMENT_COST, MAX_ARGUMENT_BYTES, argument_bytes
from tests.support.live import live
from tests.support.server import Server, leaving_nothing

pytestmark = pytest.mark.asyncio(loop_scope="module")

SESSIONS = "/api/sessions"
_SCHEMAS = json.loads((Path(__file__).parents[2] / "docs" / "openapi.json").read_text())[
    "components"
]["schemas"]
_NEW = _SCHEMAS["SessionBody"]["properties"]
MOST_LABELS, MOST_VARIABLES = _NEW["labels"]["maxProperties"], _NEW["env"]["maxProperties"]
MOST_SECRETS, MOST_MOUNTS = _NEW["secrets"]["maxProperties"], _NEW["mounts"]["maxItems"]
_ARGV = _SCHEMAS["ExecBody"]["properties"]["argv"]["anyOf"][0]
MOST_WORDS, LONGEST_WORD = _ARGV["maxItems"], _ARGV["items"]["maxLength"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(
    sandbox_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Server]:
    """A server whose operator lists one mount more than a session may have."""
    mounts = {}
    for number in range(MOST_MOUNTS + 1):
        source = tmp_path_factory.mktemp("mount")
        mounts[f"m{number}"] = {"source": str(source), "target": f"/mnt/m{number}"}
    settings = {"PADDOCK_MOUNTS": json.dumps(mounts), "PADDOCK_MAX_ACTIVE": "100"}
    async with leaving_nothing(PADDOCK_IMAGE=sandbox_image, **settings) as running:
        yield running


class Client:
    """Requests about one session."""

    def __init__(self, server: Server, path: str) -> None:
        self.server, self.path = server, path

    async def ok(self, method: str, path: str, body: Any = None) -> Any:
        """The answer of a request that must succeed."""
        status, answer = await self.asked(method, path, body)
        assert status < 300, answer
        return answer

    async def refused(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """The status and the code of a request that must not."""
        status, answer = await self.asked(method, path, body)
        assert status >= 400, answer
        return status, answer["code"]

    async def asked(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """The status and the JSON of the answer."""
        data = None if body is None else io.BytesIO(json.dumps(body).encode())
        async with self.server.client.request(method, self.path + path, data=data) as answer:
            return answer.status, await answer.json(content_type=None)

    async def said(self, *argv: str) -> str:
        """What a command prints."""
        done = await self.ok("POST", "/exec", {"argv": argv})
        assert done["exit_code"] == 0, (done["exit_code"], done["stderr"][:1000])
        return str(done["stdout"])


Created = Callable[..., Awaitable[Client]]


@pytest_asyncio.fixture(loop_scope="module")
async def created(server: Server) -> AsyncIterator[Created]:
    """Creates sessions, at high by default; they are closed at the end of the test."""
    async with AsyncExitStack() as sessions:

        async def create(**members: Any) -> Client:
            body = {"permission_level": "high", **members}
            made = await Client(server, SESSIONS).ok("POST", "", body)
            session = Client(server, f"{SESSIONS}/{made['id']}")
            sessions.push_async_callback(server.call, "DELETE", f"{session.path}?purge=true")
            return session

        yield create


async def refused(server: Server, **members: Any) -> tuple[int, str]:
    return await Client(server, SESSIONS).refused("POST", "", members)


async def test_labels_variables_secrets_and_mounts(server: Server, created: Created) -> None:
    def numbered(most: int, text: str) -> dict[str, str]:
        return {f"N{number}": text for number in range(most)}

    labels = {f"{number:>0128}": "v" * 1024 for number in range(MOST_LABELS)}
    secrets = {f"SECRET_{number}": f"secret-value-{number}" for number in range(MOST_SECRETS)}
    mounts = [f"m{number}" for number in range(MOST_MOUNTS)]
    env = numbered(MOST_VARIABLES, "text")
    session = await created(labels=labels, env=env, secrets=secrets, mounts=mounts)
    assert (await session.ok("GET", ""))["labels"] == labels
    count = "env | grep -c -e '^N[0-9]*=text$' -e '^SECRET_'; grep -c ' /mnt/m' /proc/mounts"
    told = await session.said("sh", "-c", count)
    assert told.split() == [str(MOST_VARIABLES + MOST_SECRETS), str(MOST_MOUNTS)]
    for name, more in (
        ("labels", labels | {"x": "v"}),
        ("env", env | {"X": "v"}),
        ("secrets", secrets | {"SECRET_X": "secret-value"}),
    ):
        assert (await refused(server, **{name: more}))[0] == 400, name
    assert (await refused(server, mounts=[*mounts, f"m{MOST_MOUNTS}"]))[0] == 400


async def test_words_and_their_bytes(server: Server, created: Created) -> None:
    """With a session's own secrets and all that the sandbox adds, what is accepted runs."""
    secrets = {f"SECRET_{number}": f"{number:04000}" for number in range(MOST_SECRETS)}
    session = await created(secrets=secrets)
    count = ["bash", "-c", 'echo $# "${#1}"']
    words = [*count, *"x" * (MOST_WORDS - len(count))]
    assert (await session.said(*words)).split() == [str(MOST_WORDS - len(count) - 1), "1"]
    assert (await session.refused("POST", "/exec", {"argv": [*words, "x"]}))[0] == 400
    assert (await session.said(*count, "0", "y" * LONGEST_WORD)).split() == ["1", str(LONGEST_WORD)]
    longer = {"argv": [*count, "0", "y" * (LONGEST_WORD + 1)]}
    assert (await session.refused("POST", "/exec", longer))[0] == 400
    used = argument_bytes([*count, "0"], secrets)
    full, rest = divmod(MAX_ARGUMENT_BYTES - used, LONGEST_WORD + ARGUMENT_COST)
    most = [*count, "0", *["z" * LONGEST_WORD] * full]
    told = await session.said(*most, "z" * (rest - ARGUMENT_COST))
    assert told.split() == [str(full + 1), str(LONGEST_WORD)]
    above = {"argv": [*most, "z" * (rest - ARGUMENT_COST + 1)]}
    assert (await session.refused("POST", "/exec", above))[0] == 400


async def test_ports_and_what_runs(server: Server, created: Created) -> None:
    session = await created()
    for port in range(8000, 8000 + PORT_LIMITS.ports):
        await session.ok("POST", "/ports", {"port": port})
    assert (await session.refused("POST", "/ports", {"port": 9000}))[0] == 409
    sleeping = {"argv": ["sleep", "600"], "background": True}
    for _ in range(MAX_RUNNING):
        await session.ok("POST", "/exec", sleeping)
    assert (await session.refused("POST", "/exec", sleeping))[1] == "busy"


async def test_terminals_and_their_viewers(server: Server, created: Created) -> None:
    session = await created()
    async with AsyncExitStack() as open_:

        async def view(query: str = "") -> str:
            path = f"{session.path}/terminal{query}"
            viewer = await open_.enter_async_context(live(server.client, path))
            await viewer.until("")
            while not viewer.told:
                await viewer.next()
            return str(viewer.terminal["id"])

        ids = [await view() for _ in range(SHELL_LIMITS.shells)]
        with pytest.raises(WSServerHandshakeError):
            await view()
        for _ in range(MOST_VIEWERS - 1):
            await view(f"?pty={ids[0]}")
        with pytest.raises(WSServerHandshakeError):
            await view(f"?pty={ids[0]}")
        await view(f"?pty={ids[1]}")


def archive(texts: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for path, text in texts.items():
            member = tarfile.TarInfo(path)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()


@pytest.mark.parametrize("level", ["low", "high"])
async def test_the_largest_context_pack(server: Server, created: Created, level: str) -> None:
    """Its entries, the bytes of their paths, a path, what is written, and commands."""
    session = await created(permission_level=level)
    longest = "/".join(["d" * 15] * 254)
    longest += "/" + "f" * (pack_form.MAX_PATH_BYTES - len("/workspace/") - len(longest) - 1)
    names = [longest, *(f"n{n // 100}/f{n}" for n in range(pack_form.MOST_ENTRIES - 1))]
    texts = {name: f"text {number}\n" for number, name in enumerate(names)}
    async with server.client.put(
        f"{session.path}/files/archive",
        data=io.BytesIO(archive(texts)),
        headers={"Content-Type": "application/x-tar"},
    ) as sent:
        assert sent.status == 200, await sent.text()
    await session.ok("DELETE", "")
    pack = {
        "mode": "soft_fail",
        "entries": [
            {"path": name, "content_hash": "sha256:" + hashlib.sha256(text.encode()).hexdigest()}
            for name, text in texts.items()
        ],
        "tool_allowlist": ["Read", "Execute", "Write", "ListFiles"],
        "write_allowlist": [f"/workspace/out{n}" for n in range(pack_form.MOST_WRITES)],
        "shell_allowlist": [
            *("cat *", "grep *", "touch *"),
            *(f"{n:0{pack_form.MAX_COMMAND}}" for n in range(pack_form.MOST_COMMANDS - 3)),
        ],
    }
    same = {"id": session.path.rpartition("/")[2], "permission_level": level}
    session = await created(**same, consume=pack)
    assert await session.said("cat", names[-1], longest) == texts[names[-1]] + texts[longest]
    assert (await session.said("grep", "-rhc", "text", "n7")).split() == ["1"] * 100
    await session.said("touch", f"out{pack_form.MOST_WRITES - 1}/new")
    shown = (await session.ok("GET", "/consume"))["pack"]
    assert len(shown["entries"]) == pack_form.MOST_ENTRIES
    for name, item in (
        ("entries", {"path": "one/more"}),
        ("write_allowlist", "/workspace/more"),
        ("shell_allowlist", "more"),
    ):
        more = {**pack, name: [*pack[name], item]}
        assert (await refused(server, consume=more))[0] == 400, name


@pytest.mark.slow
async def test_children(server: Server, created: Created) -> None:
    parent = await created(permission_level="low")
    # Without a limit of its own, each gets half of what is left.
    child = {"workspace": "read-only", "budget": {"audit_bytes": 1_000_000}}
    for _ in range(MAX_CHILDREN):
        await parent.ok("POST", "/spawn", child)
    assert (await parent.refused("POST", "/spawn", child))[0] == 409
