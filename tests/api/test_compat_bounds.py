"""What the foreign protocols hold and do for one caller is bounded, whatever that one sends."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientPayloadError, web

from api.app import BOUNDS
from api.compat import long_texts
from api.compat.call import Call
from api.compat.e2b.inside.messages import Config, Start
from api.compat.e2b.inside.started import Started
from api.compat.enabled import OWN_PORTS, ServedPorts
from api.compat.multipart import Multipart
from api.compat.notes import Notes
from api.compat.openhands import git
from api.compat.protocol import OwnPorts
from api.compat.spool import Spool, Spools
from api.compat.swerex import shell as shells
from api.compat.swerex.failures import quoted
from orchestrator.ground.errors import CapacityExhaustedError, ValidationError
from orchestrator.ground.serving import stream
from orchestrator.settings.settings import Settings
from paddock.contract.shells import ShellAnswer
from tests.api.conftest import OPERATOR_KEY, Api
from tests.support.connect import STREAM, Connect, Refused
from tests.support.previews import previews
from tests.support.slices import slices
from tests.support.until import until

BASE = "/compat/e2b"
FILES, PROCESS = "/filesystem.Filesystem/", "/process.Process/"
BOUNDARY = "--b\r\n"
MIB = 2**20


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"compat": ("e2b",)})


@pytest.fixture
async def session(api: Api) -> dict[str, Any]:
    return await api.session(permission_level="high", key=OPERATOR_KEY)


@pytest.fixture
def box(api: Api, session: dict[str, Any]) -> Connect:
    headers = {"E2b-Sandbox-Id": session["id"], "X-Access-Token": session["handle"]}
    return Connect(api.client, BASE, headers)


async def test_a_body_of_very_many_parts_is_refused(box: Connect) -> None:
    part = BOUNDARY + 'Content-Disposition: form-data; name="x"\r\n\r\n\r\n'
    kind = {"Content_Type": "multipart/form-data; boundary=b"}
    refused = await box.post("/files", (part * 2000 + "--b--\r\n").encode(), **kind)
    assert refused.status == 400
    assert "more than 1000 parts" in (await refused.json())["message"]


async def test_lines_before_the_first_part_are_passed_over_at_once() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(16):
            yield b"\n" * 256 * 1024

    parts = Multipart(chunks(), b"b").parts()
    with slices() as found, pytest.raises(ValidationError, match="ends within"):
        await anext(parts)
    assert found.longest < 0.5, found.which


async def test_a_long_list_holds_up_nobody(api: Api, box: Connect) -> None:
    for number in range(9000):
        api.agent.files[f"many/{number}"] = b""
    turns = 0
    done = asyncio.Event()

    async def count() -> None:
        nonlocal turns
        while not done.is_set():
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    with slices() as found:
        listed = await box.call(FILES + "ListDir", {"path": "many"})
    done.set()
    await counting
    assert len(listed["entries"]) == 9000
    assert turns > 9000 // 256, found.which


def test_long_texts_are_made_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = 0
    plain = json.dumps

    def dumps(value: Any, **how: Any) -> str:
        nonlocal longest
        longest = max(longest, len(value))
        return plain(value, **how)

    monkeypatch.setattr(json, "dumps", dumps)
    text = 'a"\\\n\udcff\U0001f600' * 10_000
    assert long_texts.json_text(text) == plain(text)
    assert longest == long_texts.PIECE
    members = {"entries": [{"a": 1}] * 5000, "told": {"output": text}, "next": "a"}
    longest = 0
    assert json.loads(long_texts.object_text(members)) == json.loads(plain(members))
    assert longest == long_texts.PIECE
    assert long_texts.size_of(members) > len(text)


@pytest.mark.parametrize(
    "encoding", ["utf-8", "utf-16", "utf-32", "euc_jp", "gb18030", "cp1252", "iso2022_jp"]
)
@pytest.mark.parametrize("errors", ["ignore", "replace", "backslashreplace"])
def test_pieces_of_a_text_are_decoded_as_the_whole(encoding: str, errors: str) -> None:
    whole = "äé".encode("utf-16-le") * 5000 + bytes(range(256)) * 100
    assert long_texts.decoded(whole, encoding, errors) == whole.decode(encoding, errors)


class _Pieces:
    """A decoder that notes how much it is given at once."""

    longest = 0

    def __init__(self, errors: str) -> None:
        pass

    def decode(self, data: bytes, *, final: bool = False) -> str:
        _Pieces.longest = max(_Pieces.longest, len(data))
        return data.decode("latin-1")


def test_no_decoder_gets_a_whole_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codecs.getincrementaldecoder", lambda _: _Pieces)
    assert long_texts.decoded(b"x" * MIB, "utf-8", "strict") == "x" * MIB
    assert _Pieces.longest == long_texts.PIECE


async def test_changes_of_very_many_files_are_told_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Beside:
        """Work that is done elsewhere."""

        def __init__(self) -> None:
            self.sizes: list[int] = []

        async def call(self, size: int, work: Any) -> Any:
            self.sizes.append(size)
            return work()

    async def base(*_: Any) -> str:
        return "c0ffee"

    async def listed(_call: Any, _path: str, *words: str) -> Any:
        return SimpleNamespace(stdout="A\0x\0" if words[0] == "diff" else "y\0" * 100_000)

    monkeypatch.setattr(git, "_base", base)
    monkeypatch.setattr(git, "_git", listed)
    monkeypatch.setattr(git, "read_query", lambda *_: SimpleNamespace(path=".", ref=None))
    beside = Beside()
    plane = SimpleNamespace(aside=beside)
    answer = await git.changes(cast(Call, SimpleNamespace(plane=plane, request=None)))
    assert answer.text is not None
    assert len(json.loads(answer.text)) == 100_001
    # To find them is one piece of work, to write them another; both are as long as they are.
    assert [size >= 200_000 for size in beside.sizes] == [True, True]


# What is remembered.


async def test_notes_are_each_sessions_own_and_end_with_it(api: Api) -> None:
    await api.session(id="one")
    await api.session(id="two")
    one, two = api.plane.sessions.registry.all[-2:]
    notes: Notes[int, str] = Notes(2)
    notes.put(two, 0, "first")
    for number in range(5):
        notes.put(one, number, "x")
    # Who has many loses its own, and nobody else's.
    assert [notes.get(one.key, number) for number in (2, 3, 4)] == [None, "x", "x"]
    assert (notes.get(two.key, 0), len(notes)) == ("first", 3)
    await api.json("DELETE", "/api/sessions/one")
    await until(lambda: len(notes) == 1)
    notes.put(one, 9, "late")
    await until(lambda: len(notes) == 1)


async def test_little_is_kept_of_a_long_request(api: Api) -> None:
    await api.session(id="one")
    session, started = api.plane.sessions.registry.all[-1], Started()
    long = "x" * MIB
    for config in (
        *(Config(cmd=long), Config(cmd="a", cwd=long)),
        *(Config(cmd="a", args=[long]), Config(cmd="a", args=[""] * MIB)),
    ):
        started.note(session, "p", Start(process=config))
        kept = started.config(session, "p")
        assert kept is not None
        assert len(kept.model_dump_json()) < 1000


async def test_a_tag_has_a_length(box: Connect) -> None:
    start = {"process": {"cmd": "/bin/bash", "args": ["-c", "true"]}, "tag": "t" * 1025}
    with pytest.raises(Refused) as refused:
        await anext(box.stream(PROCESS + "Start", start))
    assert (refused.value.code, "tag" in refused.value.message) == ("invalid_argument", True)


async def test_a_watcher_that_is_removed_leaves_nothing(api: Api, box: Connect) -> None:
    session = api.plane.sessions.registry.all[-1]
    api.agent.directories.add("d")
    left: list[int] = []
    for _ in range(5):
        made = await box.call(FILES + "CreateWatcher", {"path": "d"})
        await box.call(FILES + "RemoveWatcher", made)
        left.append(len(session.over._callbacks or ()))
    assert left == left[:1] * 5


async def test_the_beginning_of_a_streams_message_counts_as_unread(api: Api, box: Connect) -> None:
    unread = api.server.app[BOUNDS].unread
    headers = {**box.headers, "Content-Type": STREAM}

    async def body() -> AsyncIterator[bytes]:
        yield b"\0" + (4 * MIB).to_bytes(4) + b"x" * MIB
        await asyncio.Event().wait()

    path = BASE + PROCESS + "StreamInput"
    sending = asyncio.ensure_future(
        asyncio.gather(api.client.post(path, data=body(), headers=headers))
    )
    await until(lambda: unread.bytes.get(("all", "")) == MIB + 5)
    sending.cancel()
    await asyncio.wait([sending])
    await until(lambda: not unread.bytes)


async def test_what_a_command_prints_is_kept_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shells, "MOST_OUTPUT", 25)
    pages = [*(f"page {number:04}\n" for number in range(9)), "the end\n"]

    async def asked(self: object, handler: object, body: object) -> ShellAnswer:
        output = pages.pop(0)
        status = "timed_out" if pages else "finished"
        return ShellAnswer.model_construct(status=status, output=output)

    monkeypatch.setattr(shells.Shell, "_asked", asked)
    shell = object.__new__(shells.Shell)
    answer = await shell.run("yes", None, [])
    told, _, rest = answer.output.partition("\n")
    assert told == "[73 characters of output are not kept]"
    assert rest == "age 0007\npage 0008\nthe end\n"[-25:]


async def test_a_handle_that_was_replaced_is_not_handed_out(
    api: Api, session: dict[str, Any], box: Connect
) -> None:
    connect = f"{BASE}/sandboxes/{session['id']}/connect"

    async def handed() -> str:
        """What the sandbox's owner gets, who has a key."""
        headers = {"X-API-KEY": OPERATOR_KEY}
        answer = await api.client.post(connect, json={"timeout": 60}, headers=headers)
        return str((await answer.json())["envdAccessToken"])

    await box.call(PROCESS + "List", {})
    assert await handed() == session["handle"]
    await api.json("POST", f"/api/sessions/{session['id']}/handle")
    assert await handed() == OPERATOR_KEY


async def test_uploads_leave_the_disk_its_reserve(tmp_path: Path) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b"x" * MIB

    spools = Spools()
    spool = Spool(spools, "key", tmp_path, reserve=2**62)
    with pytest.raises(CapacityExhaustedError, match="short of disk space"):
        await spool.fill(chunks())
    await spool.close()
    assert spools.held == 0


def test_a_message_quotes_the_end_of_a_long_text() -> None:
    assert quoted("a'b") == repr("a'b")
    text = quoted("x" * MIB + "the end")
    assert text.endswith("the end'")
    assert len(text) < 20_000


# Ports of a protocol's own.


async def test_an_answer_that_breaks_off_at_a_host_name_is_cut(
    api: Api, session: dict[str, Any]
) -> None:
    async def broken(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await stream.begin(request, response)
        await stream.write(request, response, b"begun")
        raise RuntimeError("the middle")

    served = ServedPorts(
        OwnPorts((49983,), "E2b-Sandbox-Id", (), str), [("GET", "/broken", broken)]
    )
    async with previews(api.plane, own_ports=[served]) as shown:
        host = f"49983-{session['id']}.localhost:{shown.server.port}"
        answer = await shown.get("/broken", headers={"Host": host})
        with pytest.raises(ClientPayloadError):
            await answer.read()


async def test_answers_at_a_host_name_have_the_usual_headers(
    api: Api, session: dict[str, Any]
) -> None:
    own_ports = api.server.app[OWN_PORTS]
    async with previews(api.plane, own_ports=own_ports) as shown:
        headers = {
            "Host": f"49983-{session['id']}.localhost:{shown.server.port}",
            "X-Access-Token": session["handle"],
        }
        answer = await shown.get("/envs", headers=headers)
        assert (answer.status, answer.headers["X-Content-Type-Options"]) == (200, "nosniff")
        assert answer.headers["Cache-Control"] == "no-store"
